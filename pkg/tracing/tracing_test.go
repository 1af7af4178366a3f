package tracing_test

import (
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
