package settings_test

import (
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/settings"
)

func TestMisspelt(t *testing.T) {
	var s settings.Settings
	parser, err := kong.New(&s, settings.NewDecoder().Options("memory")...)
	if err != nil {
		t.Fatal(err)
	}
	got := settings.Misspelt([]string{
		"RUNTIME_SUBDIRECTRY=x", "REDIS_UR=localhost:6379", "GRPC_SERVER_TLS_CRET=x", "LIMIT_RESPONSE_HEADER_ENABLED=1",
		"REDSI_TYPE=x", "BACKENDTYPE=x", "BACKEND_TYP=x", "DEBUG_PROT=6071", "RUNTME_ROOT=/data",
		// Names of other programs.
		"REDIS_PASSWORD=s3cret", "REDIS_ADDR=localhost:6379", "REDIS_HOST=localhost", "LOGLEVEL=debug", "REDIS_PERSECOND_PASSWORD=x",
		"RATELIMIT_REDIS_URL=localhost:6379", "RATELIMIT_PORT=8080", "RATELIMIT_REDIS_HOST=localhost", "RATELIMIT_BACKEND_TYP=redis",
		// Settings that have gone.
		"KUADRANT_RLS_MAX_FRACTION=0.5", "REQUEST_MAX_ENTRY_BYTES=4096", "RATELIMIT_REQUEST_MAX_ENTRY_BYTES=4096", "RUNTIME_POLL_INTERVAL=1s",
		// Settings.
		"REDIS_URL=localhost:6379", "PORT=8080", "REDIS_AUTH=",
		// Variables of Services named redis, grpc, grpc-2, rpc and host, and others.
		"REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_SERVICE_HOST=10.0.0.1", "REDIS_PORT_6379_TCP_PROTO=tcp", "REDIS_SERVICE_PORT_TCP_REDIS=6379",
		"GRPC_PORT=tcp://10.0.0.1:8081", "GRPC_2_PORT=tcp://10.0.0.1:8081", "GRPC_2_SERVICE_PORT=8081", "RPC_PORT=udp://10.0.0.1:1",
		"RATELIMIT_PORT=tcp://10.0.0.1:8081", "RATELIMIT_SERVICE_HOST=10.0.0.1", "RATELIMIT_SERVICE_PORT=8081", "RATELIMIT_PORT_8081_TCP_ADDR=10.0.0.1", "RATELIMIT_VERSION=7", "REDIS_PORT=6379",
		"HOST_PORT=tcp://10.0.0.1:1",
		"KUBERNETES_SERVICE_PORT_HTTPS=443", "KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1", "POD_NAME=x", "NODE_HOST=x", "HTTP_PORT=80", "LOG_PATH=x",
		"HOSTNAME=pod", "PATH=/bin", "HOME=/", "LANG=C", "LOGNAME=x", "GOMEMLIMIT=1GiB", "MEMORY_LIMIT=1",
	}, parser.Model)
	want := []settings.Misspelling{
		{Variable: "BACKEND_TYP", Meant: "BACKEND_TYPE"},
		{Variable: "DEBUG_PROT", Meant: "DEBUG_PORT"},
		{Variable: "GRPC_SERVER_TLS_CRET", Meant: "GRPC_SERVER_TLS_CERT"},
		{Variable: "KUADRANT_RLS_MAX_FRACTION", Gone: "nothing takes its place: the limit itself bounds the hits that are held"},
		{Variable: "LIMIT_RESPONSE_HEADER_ENABLED", Meant: "LIMIT_RESPONSE_HEADERS_ENABLED"},
		{Variable: "LOGLEVEL", Meant: "LOG_LEVEL"},
		{Variable: "RATELIMIT_BACKEND_TYP", Meant: "BACKEND_TYPE"},
		{Variable: "RATELIMIT_PORT", Meant: "PORT"},
		{Variable: "RATELIMIT_REDIS_HOST", Meant: "REDIS_URL"},
		{Variable: "RATELIMIT_REDIS_URL", Meant: "REDIS_URL"},
		{Variable: "RATELIMIT_REQUEST_MAX_ENTRY_BYTES", Gone: "nothing takes its place: a key or value above 1,024 bytes counts by its SHA-256"},
		{Variable: "REDIS_ADDR", Meant: "REDIS_URL"},
		{Variable: "REDIS_HOST", Meant: "REDIS_URL"},
		{Variable: "REDIS_PASSWORD", Meant: "REDIS_AUTH"},
		{Variable: "REDIS_PERSECOND_PASSWORD", Meant: "REDIS_PERSECOND_AUTH"},
		{Variable: "REDIS_UR", Meant: "REDIS_URL"},
		{Variable: "REDSI_TYPE", Meant: "REDIS_TYPE"},
		{Variable: "REQUEST_MAX_ENTRY_BYTES", Gone: "nothing takes its place: a key or value above 1,024 bytes counts by its SHA-256"},
		{Variable: "RUNTIME_POLL_INTERVAL", Gone: "nothing takes its place: files are looked at every 1.75 s, and read on SIGHUP at once"},
		{Variable: "RUNTIME_SUBDIRECTRY", Meant: "RUNTIME_SUBDIRECTORY"},
		{Variable: "RUNTME_ROOT", Meant: "RUNTIME_ROOT"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
