#!/bin/sh
# Does one job, whose value is standard input. With another exit code than 0 it comes back after a pause.
job=$(cat)
echo "$job (delivery $PQ_DELIVERIES)"
if [ "$job" = "call back" ] && [ "$PQ_DELIVERIES" = 1 ]; then
	echo "the line is busy" >&2
	exit 1
fi
