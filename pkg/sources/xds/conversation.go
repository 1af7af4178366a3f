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

// conversation is what is said on the streams to a server, one after the other.
type conversation struct {
	node      *core.Node
	publish   sources.Publish
	connected func(bool)
	log       *slog.Logger
	heard     bool               // a response came on the current stream
	refused   waits              // since a response was last accepted
	known     map[string]version // of the delta protocol: what is in force
}

// paceOfRefusals is for servers that answer a refusal by sending the same again
// at once, as go-control-plane's does. The first refusal is not held back. Such
// a server says nothing new before it is answered, so the longest wait is also
// how long mended rules may take to come.
var paceOfRefusals = Backoff{Ended: 250 * time.Millisecond, Max: time.Second}

// stream is the part of both variants' streams that is alike.
type stream[Request, Response any] interface {
	Send(Request) error
	Recv() (Response, error)
}

// exchange sends a request and then answers each response with what answer
// makes of it, unless that is ignored, until the stream ends.
func exchange[Request, Response any](s stream[Request, Response], first Request, answer func(Response) (next Request, ignore bool)) error {
	request, ignore := first, false
	for {
		if !ignore {
			// Send knows only that the stream has ended, Recv why.
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

// started tells that a stream is open.
func (c *conversation) started() {
	c.refused = waits{Backoff: paceOfRefusals}
	c.connected(true)
	c.log.Info("xDS: connected, asking for rules", "node", c.node.GetId())
}

// foreign reports, and logs, that a response is about something that was not
// asked for.
func (c *conversation) foreign(url string) bool {
	if url == typeURL {
		return false
	}
	c.log.Warn("xDS: response of a type that was not asked for is ignored", "type", url)
	return true
}

// put publishes files and returns what to tell the server: nil when they are in
// force. Refusals after the first are held back for a while.
func (c *conversation) put(ctx context.Context, files []*rules.File, undecodable error) *rpcstatus.Status {
	c.heard = true
	err := c.publish(files, undecodable)
	if err == nil {
		c.refused.reset()
		return nil
	}
	if again := c.refused.failures > 0; again {
		sleep(ctx, c.refused.next(false))
	} else {
		c.refused.failures++
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: detail(err)}
}

// detail is an error in a size that servers accept (gRPC's default is 4 MiB).
func detail(err error) string {
	const most = 64 << 10
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= most {
		return text
	}
	text = text[:most]
	if line := strings.LastIndexByte(text, '\n'); line > 0 {
		text = text[:line]
	}
	return strings.ToValidUTF8(text, "") + "\n… and more, see the log"
}
