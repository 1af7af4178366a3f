package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// answered reports whether err is what a server answered.
func answered(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// cannotServe reports whether a server answered that it is no master that can
// serve now: it loads its data, is a replica, or its cluster is down.
func cannotServe(err error) bool {
	return goredis.IsLoadingError(err) || goredis.IsReadOnlyError(err) ||
		goredis.IsMasterDownError(err) || goredis.IsClusterDownError(err)
}

// explain adds to an error that comes of a wrong setting how to mend it.
func explain(err error) error {
	var record tls.RecordHeaderError
	text := err.Error()
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("the server does not speak TLS on this port (use redis:// and no TLS, or the port for TLS): %w", err)
	case strings.Contains(text, `\x15\x03`): // a TLS alert, taken for a reply
		return fmt.Errorf("the server speaks TLS on this port (use TLS or rediss://): %w", err)
	case strings.Contains(text, "cluster support disabled"):
		return fmt.Errorf("the server is not part of a cluster (use type SINGLE): %w", err)
	case strings.Contains(text, "unknown command 'sentinel'"):
		return fmt.Errorf("the server is not a sentinel (use type SINGLE, or the sentinels' port): %w", err)
	}
	return err
}
