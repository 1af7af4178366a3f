package tracing_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/tracing"
)

// Without a tracer the service and the store are returned as they are.
func TestNothingIsInTheWayWhenOff(t *testing.T) {
	var off *tracing.Tracer
	limits := new(service.Service)
	if off.Decider(limits) != service.Decider(limits) {
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
