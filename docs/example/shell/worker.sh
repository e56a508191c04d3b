#!/bin/sh
# Runs handle.sh for each job of queue "jobs", and waits for more. Ctrl-C lets it finish the one under way.
# It takes flags of pq work, such as --jobs 4.
cd "$(dirname "$0")"
exec pq work jobs "$@" -- ./handle.sh
