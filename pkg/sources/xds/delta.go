package xds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// delta asks for the resources that differ from the resources in force.
//
// A server does not send a version of a resource again, even if it was refused.
// So a response is applied to all responses before it on the stream, refused or
// not: when the server corrects one of two resources that it changed together,
// the change of the other one is not lost. A new stream starts from the
// resources in force.
func (c *conversation) delta(ctx context.Context, client discovery.AggregatedDiscoveryServiceClient) error {
	first := &discovery.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typeURL, InitialResourceVersions: map[string]string{}}
	received := map[string]resource{}
	for name, r := range c.known {
		first.InitialResourceVersions[name] = r.version
		received[name] = r
	}
	return exchange(ctx, c, client.DeltaAggregatedResources, first, func(response *discovery.DeltaDiscoveryResponse) *discovery.DeltaDiscoveryRequest {
		receive(received, response)
		var all []resource
		for _, name := range slices.Sorted(maps.Keys(received)) {
			all = append(all, received[name])
		}
		refused := c.put(ctx, all)
		if refused == nil {
			c.known = maps.Clone(received)
		}
		return &discovery.DeltaDiscoveryRequest{
			Node: c.node, TypeUrl: typeURL, ResponseNonce: response.GetNonce(), ErrorDetail: refused,
		}
	})
}

func receive(received map[string]resource, response *discovery.DeltaDiscoveryResponse) {
	for _, name := range response.GetRemovedResources() {
		delete(received, name)
	}
	for _, r := range response.GetResources() {
		if r.GetResource() == nil {
			continue // a heartbeat: the resource is still valid
		}
		next := read(fmt.Sprintf("resource %q", r.GetName()), r.GetResource())
		next.version = r.GetVersion()
		received[r.GetName()] = next
	}
}
