package tracing_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/tracing"
)

// Without a tracer the service and the store are returned as they are.
func TestNothingIsInTheWayWhenOff(t *testing.T) {
	var off *tracing.Tracer
	service := &pb.UnimplementedRateLimitServiceServer{}
	if off.Service(service) != pb.RateLimitServiceServer(service) {
		t.Error("the service is wrapped")
	}
	store, err := memory.New(memory.Options{MaxKeys: 1})
	if err != nil {
		t.Fatal(err)
	}
	if off.Store(store, "redis") != store {
		t.Error("the store is wrapped")
	}
	if err := off.Close(); err != nil {
		t.Error(err)
	}
}

func TestUnknownProtocol(t *testing.T) {
	_, err := tracing.Open(context.Background(), tracing.Options{Protocol: "thrift", Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "thrift") {
		t.Errorf("got %v", err)
	}
}
