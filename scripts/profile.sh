#!/usr/bin/env bash
# scripts/profile.sh FILE [SECONDS]   records where bin/rls spends its time, for the compiler:
# a CPU profile of so many seconds (5) for each store and kind of request, merged into FILE.
# It needs redis-server, and four ports of the loopback: PROFILE_PORTS. RLS is another program.
set -euo pipefail
cd "$(dirname "$0")/.."
file=$1 seconds=${2:-5} rls=${RLS:-bin/rls}
read -r redis grpc http debug <<<"${PROFILE_PORTS:-23400 23401 23402 23403}"
dir=/tmp/rls-profile # not a new name each time, because the profile has the path of the program
mkdir "$dir"
trap 'kill $(jobs -p) 2>/dev/null || true; wait || true; rm -rf "$dir"' EXIT
export PPROF_TMPDIR=$dir
mkdir "$dir/config"
cp "$rls" "$dir/rls"

# requests DESCRIPTORS KEYS   prints a request for each value of the keys.
requests() {
	local list=''
	for d in $(seq "$1"); do list+=",{\"entries\":[{\"key\":\"d$d\",\"value\":\"v&\"}]}"; done
	seq "$2" | sed "s|.*|{\"domain\":\"profile\",\"descriptors\":[${list:1}]}|"
}
requests 1 10000 >"$dir/one.json"
requests 4 10000 >"$dir/four.json"
requests 1 1 >"$dir/hot.json"
{
	echo 'domain: profile'
	echo 'descriptors:'
	for d in 1 2 3 4; do echo "  - {key: d$d, rate_limit: {unit: hour, requests_per_unit: 1000000000}}"; done
} >"$dir/config/profile.yaml"

redis-server --port "$redis" --bind 127.0.0.1 --save '' --appendonly no >"$dir/redis.log" &
for store in "redis REDIS_SOCKET_TYPE=tcp REDIS_URL=127.0.0.1:$redis" memory; do
	# shellcheck disable=SC2086 # the words are variables
	env BACKEND_TYPE=$store RUNTIME_ROOT="$dir" RUNTIME_SUBDIRECTORY= RUNTIME_APPDIRECTORY=config RUNTIME_WATCH_ROOT=false \
		GRPC_HOST=127.0.0.1 GRPC_PORT="$grpc" HOST=127.0.0.1 PORT="$http" DEBUG_HOST=127.0.0.1 DEBUG_PORT="$debug" \
		USE_STATSD=false LOG_LEVEL=error DRAIN_PERIOD=0s "$dir/rls" serve &
	service=$!
	until "$rls" healthcheck --addr "127.0.0.1:$grpc" 2>/dev/null; do
		kill -0 "$service" # it has ended with an error
		sleep 0.1
	done
	for kind in one four hot; do
		"$rls" client --addr "127.0.0.1:$grpc" --request "$dir/$kind.json" --concurrency 64 --duration "$((seconds + 1))s" &
		client=$!
		go tool pprof -symbolize none -proto -seconds "$seconds" -output "$dir/${store%% *}-$kind.pb" \
			"http://127.0.0.1:$debug/debug/pprof/profile"
		wait "$client"
	done
	kill "$service"
	wait "$service"
done
go tool pprof -symbolize none -proto -output "$file" "$dir"/*.pb
