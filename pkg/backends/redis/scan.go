package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
)

var _ backends.Scanner = (*Store)(nil)

// scanned is the number of keys that one SCAN looks at, which takes Redis less than a
// millisecond.
const scanned = 1000

// Scan implements backends.Scanner. In a cluster it asks each master.
func (s *Store) Scan(ctx context.Context, prefix string, each func(keys []string) error) error {
	var refused error
	err := s.servers.scan(ctx, pattern(prefix), func(keys []string) error {
		refused = each(keys)
		return refused
	})
	switch {
	case err == nil || refused != nil:
		return refused
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("redis: scan: %w", unavailable(err))
}

// pattern is the glob that matches the names that begin with prefix.
func pattern(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(prefix) + "*"
}

// scan calls each with the keys of one server that match a pattern.
func scan(ctx context.Context, client *goredis.Client, match string, each func([]string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, match, scanned).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := each(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (s *single) scan(ctx context.Context, match string, each func([]string) error) error {
	if err := scan(ctx, s.client, match, each); err != nil {
		return fmt.Errorf("%s: %w", s.way.name(), err)
	}
	return nil
}

// scan asks all masters at once and calls each with the keys of one after the other.
func (c *cluster) scan(ctx context.Context, match string, each func([]string) error) error {
	var one sync.Mutex
	return c.client.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		err := scan(ctx, node, match, func(keys []string) error {
			one.Lock()
			defer one.Unlock()
			if ctx.Err() != nil { // another master has failed
				return ctx.Err()
			}
			return each(keys)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", node.Options().Addr, err)
		}
		return nil
	})
}
