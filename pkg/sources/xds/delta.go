package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"example.org/rls/pkg/descriptors/rules"
)

// version is one version of a resource.
type version struct {
	name string
	file *rules.File
	err  error // the reason why it could not be decoded
}

// delta asks for the resources that differ from the resources in force.
//
// A server does not send a version of a resource again, even if it was refused.
// So a response is applied to all responses before it on the stream, refused or
// not: when the server corrects one of two resources that it changed together,
// the change of the other one is not lost. A new stream starts from the
// resources in force.
func (c *conversation) delta(ctx context.Context, client discovery.AggregatedDiscoveryServiceClient) error {
	stream, err := client.DeltaAggregatedResources(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	c.started()
	first := &discovery.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typeURL, InitialResourceVersions: map[string]string{}}
	for name, v := range c.known {
		first.InitialResourceVersions[name] = v.name
	}
	received := maps.Clone(c.known)
	if received == nil {
		received = map[string]version{}
	}
	return exchange(stream, first, func(response *discovery.DeltaDiscoveryResponse) (*discovery.DeltaDiscoveryRequest, bool) {
		if c.foreign(response.GetTypeUrl()) {
			return nil, true
		}
		receive(received, response)
		refused := c.put(ctx, files(received), undecodable(received))
		if refused == nil {
			c.known = maps.Clone(received)
		}
		return &discovery.DeltaDiscoveryRequest{
			Node: c.node, TypeUrl: typeURL, ResponseNonce: response.GetNonce(), ErrorDetail: refused,
		}, false
	})
}

func receive(received map[string]version, response *discovery.DeltaDiscoveryResponse) {
	for _, name := range response.GetRemovedResources() {
		delete(received, name)
	}
	for _, resource := range response.GetResources() {
		if resource.GetResource() == nil {
			continue // a heartbeat: the resource is still valid
		}
		v := version{name: resource.GetVersion()}
		v.file, v.err = decode(resource.GetResource())
		received[resource.GetName()] = v
	}
}

func files(received map[string]version) []*rules.File {
	var files []*rules.File
	for _, name := range slices.Sorted(maps.Keys(received)) {
		files = append(files, received[name].file)
	}
	return files
}

func undecodable(received map[string]version) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(received)) {
		if err := received[name].err; err != nil {
			problems = append(problems, fmt.Errorf("resource %q: %w", name, err))
		}
	}
	return errors.Join(problems...)
}
