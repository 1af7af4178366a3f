package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/sources"
)

// conversation is the exchange with a server over one stream after the other.
type conversation struct {
	node      *core.Node
	publish   sources.Publish
	connected func(bool)
	log       *slog.Logger
	heard     bool               // a response came on the current stream
	inForce   bool               // a response was accepted
	refused   waits              // since the last response that was accepted
	known     map[string]version // of the delta protocol: the resources in force
}

// paceOfRefusals delays refusals but the first. A server such as
// go-control-plane's answers a refusal with the same rules at once, and sends
// nothing new before it has the refusal. So the longest wait also delays
// corrected rules.
var paceOfRefusals = Backoff{Ended: 250 * time.Millisecond, Max: time.Second}

// stream is a stream of either variant of the protocol.
type stream[Request, Response any] interface {
	Send(Request) error
	Recv() (Response, error)
}

// exchange sends first, and then for each response the request that answer
// returns, unless answer says to ignore the response. It returns the reason why
// the stream ended.
func exchange[Request, Response any](s stream[Request, Response], first Request, answer func(Response) (next Request, ignore bool)) error {
	request, ignore := first, false
	for {
		if !ignore {
			// After io.EOF, Recv returns the reason why the stream ended.
			if err := s.Send(request); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		response, err := s.Recv()
		if err != nil {
			return err
		}
		request, ignore = answer(response)
	}
}

// started notes that a stream is open.
func (c *conversation) started() {
	c.refused = waits{Backoff: paceOfRefusals}
	c.connected(true)
	c.log.Info("xDS: connected, asking for rules", "node", c.node.GetId())
}

// foreign reports whether a response has resources of another type than the
// request, and logs it.
func (c *conversation) foreign(url string) bool {
	if url == typeURL {
		return false
	}
	c.log.Warn("xDS: response of a type that was not asked for is ignored", "type", url)
	return true
}

// put publishes files and returns the refusal for the server, nil when the files
// are in force. It waits before it returns a refusal after the first.
func (c *conversation) put(ctx context.Context, files []*rules.File, undecodable error) *rpcstatus.Status {
	c.heard = true
	err := c.publish(files, undecodable)
	if err == nil {
		c.refused.reset()
		c.inForce = true
		return nil
	}
	if again := c.refused.failures > 0; again {
		sleep(ctx, c.refused.next(false))
	} else {
		c.refused.failures++
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: detail(err)}
}

// rules says which rules are in force without the server, for the log.
func (c *conversation) rules() string {
	if c.inForce {
		return "the last good rules stay in force"
	}
	return "no rules are in force"
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
