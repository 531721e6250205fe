#!/usr/bin/env python3
"""A worker that lives on and answers one JSON line per message.

    estafeta run --ring mails --handle-lines 'python3 worker.py'
    estafeta publish --ring mails '{"to":"ann@example.com","text":"hello"}'
"""

import json
import sys


def handle(message):
    """Returns the reply to one message. The worker adds the id."""
    try:
        mail = json.loads(message["body"])
        receiver = mail["to"]
    except (KeyError, TypeError, ValueError) as error:
        # No further attempt would mend this message, so it becomes a dead letter at once.
        return {"outcome": "fail", "reason": f"not a mail: {error!r}"}
    if receiver == "busy@example.com":
        # Not now: the message waits in Redis, and no attempt is counted. `carry` comes back with it.
        asked = int(message["carry"] or 0) + 1
        if asked < 3:
            return {"outcome": "snooze", "after": "100ms", "carry": str(asked)}
    if receiver == "flaky@example.com" and message["attempt"] == 1:
        # Something went wrong: one attempt is used up, and the next one comes later.
        return {"outcome": "retry", "after": "100ms", "reason": "the mail server answered 503"}
    # `name` is the same in each attempt. As the Message-ID of the mail, it keeps anybody from getting the mail twice.
    print(f"{message['name']}: a mail to {receiver}", file=sys.stderr)
    return {"outcome": "done", "result": f"sent to {receiver}"}


# The loop ends when the node closes stdin, because it stops.
for line in sys.stdin:
    message = json.loads(line)
    reply = {"id": message["id"], **handle(message)}
    # Without flush, the reply would stay in Python's buffer, and the message would run into its time limit.
    print(json.dumps(reply), flush=True)
