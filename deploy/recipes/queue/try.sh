#!/bin/sh
# Sends one request, and then three at the same time.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

# The status of the answer, and whether it came within a second.
timed() {
	curl -s -o /dev/null -w '%{http_code} %{time_total}\n' "$url/legacy" | while read -r status seconds; do
		case $seconds in
		0[.,]*) echo "$status at once" ;;
		*) echo "$status after waiting" ;;
		esac
	done
}

echo "one request:"
timed
echo "three together, as they are answered:"
timed & timed & timed &
wait
