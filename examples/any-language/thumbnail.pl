#!/usr/bin/env perl
# One process per message: the body is on stdin, and the exit code is the outcome.
#
#     estafeta run --ring images --handle 'perl thumbnail.pl' --results 1h
#     estafeta publish --ring images < picture.pgm
#
# This one shrinks a grey picture (PGM, format P2) to half its size. What it prints is the result of the message.
use strict;
use warnings;

my @words = split ' ', do { local $/; <STDIN> // '' };

# 65: no further attempt would mend the body. What is on stderr becomes the reason of the dead letter.
sub fail { print STDERR "$_[0]\n"; exit 65 }

fail("expected a picture that begins with P2") unless @words and shift(@words) eq 'P2';
my ($width, $height, $white, @pixels) = @words;
fail("expected width, height and the value of white") unless defined $white;
fail("expected " . $width * $height . " pixels, got " . @pixels) unless @pixels == $width * $height;

# 75, as every other code: another attempt later. This stands for a disk that is full.
if (($ENV{ESTAFETA_MESSAGE_ATTEMPT} // 1) == 1 and $white == 1) {
    print STDERR "no room for $ENV{ESTAFETA_MESSAGE_NAME}\n";
    exit 75;
}

print "P2 ", int($width / 2), " ", int($height / 2), " $white\n";
for my $row (grep { $_ % 2 == 0 } 0 .. $height - 2) {
    print join(' ', map { $pixels[$row * $width + 2 * $_] } 0 .. int($width / 2) - 1), "\n";
}
exit 0;    # done
