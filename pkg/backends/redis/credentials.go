package redis

import (
	"context"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// credentials are the user and the password for a new connection to a server, as
// go-redis asks for them.
func (t *target) credentials(context.Context) (user, password string, err error) {
	if t.Auth == nil {
		return t.user, t.password, nil
	}
	user, password = cutAuth(t.Auth())
	return user, password, nil
}

// signIn authenticates a new connection to a sentinel, because go-redis asks for the
// credentials for sentinels only once. go-redis calls it for the connections to the
// master, too, and leaves them as they are: it has authenticated them.
func (t *target) signIn(ctx context.Context, c *goredis.Conn) error {
	if t.SentinelAuth == nil || strings.Contains(c.String(), masterAddr) {
		return nil
	}
	var err error
	if user, password := cutAuth(t.SentinelAuth()); user != "" {
		err = c.AuthACL(ctx, user, password).Err()
	} else {
		err = c.Auth(ctx, password).Err()
	}
	if err != nil {
		return fmt.Errorf("authenticate at a sentinel: %w", err)
	}
	return nil
}

// masterAddr is what go-redis calls the address of the master that sentinels name.
const masterAddr = "FailoverClient"

// cutAuth cuts "user:password", or "password".
func cutAuth(auth string) (user, password string) {
	if user, password, both := strings.Cut(auth, ":"); both {
		return user, password
	}
	return "", auth
}
