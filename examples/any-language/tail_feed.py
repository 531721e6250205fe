#!/usr/bin/env python3
"""Publishes each line of a growing file exactly once, on whichever node is elected.

    estafeta run --ring log --feed 'python3 tail_feed.py access.log' --handle 'sh -c "cat >> seen; echo >> seen"'

The checkpoint is a place in the file, in bytes: everything before it is in Redis, and nothing after it. All nodes that
may be elected must see the same file.
"""

import base64
import json
import os
import sys
import time

MOST = 1000  # Lines per checkpoint. More are refused.
LONGEST = 1024 * 1024  # Bytes of a line. A longer line is published in pieces, so that memory stays small.

# The first line of stdin has the last checkpoint, or null the first time.
checkpoint = json.loads(sys.stdin.readline())["checkpoint"] or 0
# This feed needs no receipts. A feed must read its stdin or close it: otherwise the pipe fills up one day.
os.close(0)

with open(sys.argv[1], "rb") as file:
    file.seek(checkpoint)
    while True:
        lines, size = 0, 0
        # Half the bytes that a batch may have, so that one more line still fits.
        while lines < MOST and size < 2 * LONGEST:
            line = file.readline(LONGEST)
            if not line.endswith(b"\n") and len(line) < LONGEST:
                file.seek(-len(line), os.SEEK_CUR)  # The other half is not written yet.
                break
            # Base64 keeps the bytes as they are, whatever their encoding. The handler gets the bytes again.
            body = base64.b64encode(line.rstrip(b"\r\n")).decode()
            print(json.dumps({"bodyBase64": body}))
            lines, size = lines + 1, size + len(line)
        if lines:
            # Everything since the last checkpoint goes to Redis in one step, together with this place.
            print(json.dumps({"checkpoint": file.tell()}), flush=True)
        else:
            time.sleep(0.1)  # The node ends this process with SIGTERM when its term is over.
