#!/bin/sh
# Makes calls of the nats tool for JetStream on the queue "jobs", and checks what they print. The last line says
# which version of the tool did it.
set -eu

# js is nats in the domain of the queues. The tool takes the domain after its command.
js() { nats --js-domain pq --timeout 15s "$@"; }

# want fails unless a text has a part.
want() {
	case $1 in
	*"$2"*) ;;
	*) printf 'want %s in\n%s\n' "$2" "$1" >&2; exit 1 ;;
	esac
}

# push returns when the item is in the queue.
push() { nats --timeout 15s request --raw pq.jobs.push "$@" >/dev/null; }

want "$(js account info 2>&1)" JetStream
want "$(js stream info jobs --json)" '"pq.jobs.push"'
js consumer add jobs tool --pull --ack explicit --deliver all --wait 1m --defaults >/dev/null
want "$(js consumer info jobs tool --json)" '"durable_name": "tool"'
want "$(js consumer ls jobs --names)" tool

push a
push b --header Pq-Priority:-1
want "$(js consumer next jobs min --ack)" b
want "$(js consumer next jobs tool --ack)" a
want "$(js stream ls --names --all)" jobs
# Both were acknowledged: none is left, ready or leased.
until [ "$(nats --timeout 15s request --raw pq.jobs.info '' | tr ',{' '\n\n' | grep -cE '^"(ready|leased)":0$')" -eq 2 ]; do sleep 0.1; done
push c
js stream purge jobs --force >/dev/null
if js consumer next jobs min --timeout 1s >/dev/null 2>&1; then echo "an item is left after the purge" >&2; exit 1; fi
js consumer rm jobs tool --force >/dev/null
if js consumer info jobs tool >/dev/null 2>&1; then echo "the consumer is still there" >&2; exit 1; fi
echo "nats $(nats --version 2>&1): all calls succeeded"
