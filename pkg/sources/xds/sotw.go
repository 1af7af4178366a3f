package xds

import (
	"context"
	"errors"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"example.org/rls/pkg/descriptors/rules"
)

// stateOfTheWorld asks for all resources. Each stream starts without a version,
// because a restarted server may use the same version for another snapshot.
func (c *conversation) stateOfTheWorld(ctx context.Context, client discovery.AggregatedDiscoveryServiceClient) error {
	stream, err := client.StreamAggregatedResources(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	c.started()
	accepted := ""
	request := func(nonce string, refused *rpcstatus.Status) *discovery.DiscoveryRequest {
		return &discovery.DiscoveryRequest{
			Node: c.node, TypeUrl: typeURL, VersionInfo: accepted, ResponseNonce: nonce, ErrorDetail: refused,
		}
	}
	return exchange(stream, request("", nil), func(response *discovery.DiscoveryResponse) (*discovery.DiscoveryRequest, bool) {
		if c.foreign(response.GetTypeUrl()) {
			return nil, true
		}
		files := make([]*rules.File, 0, len(response.GetResources()))
		var problems []error
		for i, resource := range response.GetResources() {
			file, err := decode(resource)
			if err != nil {
				problems = append(problems, fmt.Errorf("resources[%d]: %w", i, err))
			}
			files = append(files, file)
		}
		refused := c.put(ctx, files, errors.Join(problems...))
		if refused == nil {
			accepted = response.GetVersionInfo()
		}
		return request(response.GetNonce(), refused), false
	})
}
