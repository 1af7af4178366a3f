package lane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
)

// Answered reports whether err is an answer of a server.
func Answered(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// CannotServe reports whether a server answered that it cannot serve now, whatever
// the command: it loads its data, is busy with a script or has no room for the
// client; it refuses the password; it refuses writes, because it is a replica, has
// too few replicas, is full or fails to save; or its cluster is down.
func CannotServe(err error) bool {
	return goredis.IsLoadingError(err) || goredis.HasErrorPrefix(err, "BUSY ") || goredis.IsMaxClientsError(err) ||
		goredis.IsAuthError(err) ||
		goredis.IsReadOnlyError(err) || goredis.IsNoReplicasError(err) || goredis.IsOOMError(err) || goredis.HasErrorPrefix(err, "MISCONF ") ||
		goredis.IsMasterDownError(err) || goredis.IsClusterDownError(err)
}

// Explain adds advice to an error that a wrong setting causes. silent says that
// the server has not answered any call yet.
func Explain(err error, silent bool) error {
	advice := WrongKind(err)
	switch {
	case silent && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("closed before the first answer (does the server speak TLS on this port? then use TLS or rediss://): %w", err)
	case errors.Is(err, net.ErrClosed):
		return errors.New("no answer: all connections were closed, because the server was silent or has become a replica")
	case advice != "" && !strings.Contains(err.Error(), advice):
		return fmt.Errorf("%s: %w", advice, err)
	}
	return err
}

// WrongKind is advice about a server whose answer shows that it is of another kind
// than the store was told; "" if err is no such answer.
func WrongKind(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "cluster support disabled"):
		return "the server is not part of a cluster (use type SINGLE)"
	case strings.Contains(text, "unknown command") && strings.Contains(text, "entinel"):
		return "the server is not a sentinel (use the sentinels' port, or type SINGLE)"
	}
	return ""
}

// handshakeError is the error of a TLS handshake with addr. Redis does not
// answer a client that speaks TLS to a plain port.
func handshakeError(addr string, err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("TLS handshake with %s: %w (does the server speak TLS on this port? else use no TLS and redis://)", addr, err)
	}
	return fmt.Errorf("TLS handshake with %s: %w", addr, err)
}
