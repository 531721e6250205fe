// This library is preloaded into a server. It moves the wall clock by the number of seconds in the file CLOCK_OFFSET,
// and a change of the file takes effect at once. It calls the kernel directly: to look up the real functions would
// allocate memory, and the allocator asks for the time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *offset;

__attribute__((constructor)) static void find_offset(void) {
  const char *path = getenv("CLOCK_OFFSET");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file >= 0) {
    void *map = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    offset = map == MAP_FAILED ? NULL : map;
    close(file);
  }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += *offset;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (seconds) {
    *seconds = precise.tv_sec;
  }
  return precise.tv_sec;
}
