#!/bin/sh
# Pushes, leases and pops with pq. worker.sh does jobs as they come.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# After an error, push again with the same message id: it is in the queue once. The ids here differ from run to run.
pq push jobs "write the report" --priority 5 --msg-id "report $$" >/dev/null
pq push jobs "put out the fire" --priority 1 --msg-id "fire $$" >/dev/null
pq push jobs "put out the fire" --priority 1 --msg-id "fire $$" --json | grep -o '"duplicate":true'
pq len jobs

pq lease jobs --ack-wait 1m >"$tmp/job" # a receipt, and then the value
receipt=$(head -n 1 "$tmp/job")
if tail -n +2 "$tmp/job" | grep report; then
	pq ack "$receipt"
else
	pq nak "$receipt" --reason "the line is busy" # it comes back to its place
fi

pq pop jobs --all --json | grep -o '"priority":[0-9]*'
pq pop jobs || test $? = 3 && echo "the queue is empty" # any other code is an error
