package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/sources"
)

// conversation is the exchange with a server over one stream after the other.
type conversation struct {
	*Source
	node    *core.Node
	publish sources.Publish
	heard   bool                // a response came on the current stream
	inForce bool                // a response was accepted
	refused waits               // since the last response that was accepted
	known   map[string]resource // of the delta protocol: the resources in force
}

// paceOfRefusals delays refusals but the first. A server such as
// go-control-plane's answers a refusal with the same rules at once, and sends
// nothing new before it has the refusal. So the longest wait also delays
// corrected rules.
var paceOfRefusals = Backoff{Ended: 250 * time.Millisecond, Max: time.Second}

// exchange opens a stream, sends first, and then for each response the request that
// answer returns. A response of another type is logged and ignored. It returns the
// reason why the stream could not be opened or ended.
func exchange[Request, Response any, Typed interface {
	*Response
	GetTypeUrl() string
}](
	ctx context.Context, c *conversation,
	open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Request, Response], error),
	first *Request, answer func(Typed) (*Request, error),
) error {
	stream, err := open(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	c.refused = waits{Backoff: paceOfRefusals}
	c.Connected(true)
	c.Log.Info("xDS: connected, asking for rules", "node", c.NodeID)
	for request := first; ; {
		// After io.EOF, Recv returns the reason why the stream ended.
		if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		response, err := stream.Recv()
		for ; err == nil && Typed(response).GetTypeUrl() != typeURL; response, err = stream.Recv() {
			c.Log.Warn("xDS: response of a type that was not asked for is ignored", "type", Typed(response).GetTypeUrl())
		}
		if err != nil {
			return err
		}
		if request, err = answer(response); err != nil {
			return err
		}
	}
}

// stateOfTheWorld asks for all resources. Each stream starts without a version,
// because a restarted server may use the same version for another snapshot.
func (c *conversation) stateOfTheWorld(ctx context.Context, client discovery.AggregatedDiscoveryServiceClient) error {
	accepted := ""
	request := func(nonce string, refused *rpcstatus.Status) *discovery.DiscoveryRequest {
		return &discovery.DiscoveryRequest{
			Node: c.node, TypeUrl: typeURL, VersionInfo: accepted, ResponseNonce: nonce, ErrorDetail: refused,
		}
	}
	return exchange(ctx, c, client.StreamAggregatedResources, request("", nil), func(response *discovery.DiscoveryResponse) (*discovery.DiscoveryRequest, error) {
		var all []resource
		room := c.room()
		for i, body := range response.GetResources() {
			all = append(all, read(fmt.Sprintf("resources[%d]", i), body, &room))
		}
		refused := c.put(ctx, all)
		if refused == nil {
			accepted = response.GetVersionInfo()
		}
		return request(response.GetNonce(), refused), nil
	})
}

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
	return exchange(ctx, c, client.DeltaAggregatedResources, first, func(response *discovery.DeltaDiscoveryResponse) (*discovery.DeltaDiscoveryRequest, error) {
		if err := receive(received, response, c.room()); err != nil {
			return nil, err
		}
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
		}, nil
	})
}

// errTooLarge says that there is no room for the rules of the server.
var errTooLarge = errors.New("the server's rules take too much memory, more than 256 MiB and 64 times XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")

// room is the memory in bytes that the rules of the server may take, about.
func (c *conversation) room() int { return 256<<20 + 64*cmp.Or(c.MaxMessageBytes, 4<<20) }

// receive adds the resources of a response. Nothing is known of the later ones if there is
// no room for them all.
func receive(received map[string]resource, response *discovery.DeltaDiscoveryResponse, room int) error {
	for _, name := range response.GetRemovedResources() {
		delete(received, name)
	}
	for _, r := range received {
		room -= r.size
	}
	for _, r := range response.GetResources() {
		if r.GetResource() == nil {
			continue // a heartbeat: the resource is still valid
		}
		room += received[r.GetName()].size
		next := read(fmt.Sprintf("resource %q", r.GetName()), r.GetResource(), &room)
		next.version = r.GetVersion()
		received[r.GetName()] = next
		if room < 0 {
			return errTooLarge
		}
	}
	return nil
}

// resource is one version of a resource.
type resource struct {
	version string // in the delta protocol
	size    int    // in memory, about
	file    *rules.File
	err     error // the reason why it could not be decoded
}

// read decodes a resource; an error has its name.
func read(name string, body *anypb.Any, room *int) resource {
	before := *room
	*room -= 2<<10 + len(name) // for the resource itself
	file, err := decode(body, room)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return resource{size: before - *room, file: file, err: err}
}

// put publishes resources and returns the refusal for the server, nil when they are
// in force. It waits before it returns a refusal after the first.
func (c *conversation) put(ctx context.Context, all []resource) *rpcstatus.Status {
	c.heard = true
	var files []*rules.File
	var undecodable []error
	for _, r := range all {
		files = append(files, r.file)
		undecodable = append(undecodable, r.err)
	}
	err := c.publish(files, errors.Join(undecodable...))
	if err == nil {
		c.refused.failures = 0
		c.inForce = true
		return nil
	}
	again := c.refused.failures > 0
	if wait := c.refused.next(false); again {
		sleep(ctx, wait)
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: detail(err)}
}

// detail is the text of an error, cut to a size that servers accept (gRPC's
// default is 4 MiB).
func detail(err error) string {
	const maxLen = 64 << 10
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxLen {
		return text
	}
	text = text[:maxLen]
	if line := strings.LastIndexByte(text, '\n'); line > 0 {
		text = text[:line]
	}
	return strings.ToValidUTF8(text, "") + "\n… and more, see the log"
}
