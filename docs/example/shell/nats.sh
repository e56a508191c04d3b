#!/bin/sh
# Pushes, pops and leases with the nats tool. For work in scripts, pq has less to write: see pq.sh.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# request sends a request and prints the payload of the reply. If the bridge refuses the request, nats exits with 0 all
# the same; the headers say so, and nats writes them to standard error.
request() {
	nats request --no-templates --timeout 15s "$@" >"$tmp/payload" 2>"$tmp/headers" || { cat "$tmp/payload" "$tmp/headers" >&2; return 1; }
	if grep ' Nats-Service-Error' "$tmp/headers" >&2; then return 1; fi
	cat "$tmp/payload"
}

# lease leases the most urgent job, for a minute. nats request does not show the reply subject, but nats sub does.
lease() {
	inbox=_INBOX.$$.$(date +%s)
	nats sub "$inbox" >"$tmp/leased" 2>/dev/null &
	until grep -q Received "$tmp/leased"; do nats pub --quiet "$inbox" hello; done # until it is subscribed
	nats pub --quiet pq.jobs.pop.min '{"ack_wait":"1m","expires":"10s"}' --reply "$inbox"
	tenths=0 # give up five seconds after expires: a bridge that is killed says nothing
	until grep -q 'with reply\|Nats-Service-Error' "$tmp/leased" || [ $tenths -ge 150 ]; do sleep 0.1; tenths=$((tenths + 1)); done
	kill $!
	wait $! 2>/dev/null || : # or it may print into the file of the next
	if grep Nats-Service-Error "$tmp/leased" >&2; then return 1; fi
	if [ $tenths -ge 150 ]; then echo "no answer: the lease may have begun, and will end" >&2; return 1; fi
	reply=$(sed -n 's/.*with reply "\(.*\)"$/\1/p' "$tmp/leased")
}

# After an error, push again with the same message id: it is in the queue once. The ids here differ from run to run.
request pq.jobs.push "write the report" --header Pq-Priority:5 --header "Nats-Msg-Id:report $$" >/dev/null
request pq.jobs.push "put out the fire" --header Pq-Priority:1 --header "Nats-Msg-Id:fire $$" >/dev/null
request pq.jobs.push "put out the fire" --header Pq-Priority:1 --header "Nats-Msg-Id:fire $$" | grep -o '"duplicate":true'
request pq.jobs.len ""

lease
request -- "$reply" '-NAK {"reason":"the line is busy"}' >/dev/null # it comes back to its place
lease
request "$reply" +ACK >/dev/null
request "$reply" +ACK >/dev/null 2>&1 || echo "acknowledged before"

request pq.jobs.pop.min '{"expires":"10s"}' # waits, if there is nothing
request pq.jobs.pop.min "" 2>/dev/null || echo "the queue is empty"
