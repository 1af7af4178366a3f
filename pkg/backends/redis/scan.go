package redis

import (
	"context"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// scanned is the number of keys that one SCAN looks at, which takes Redis less than a
// millisecond.
const scanned = 1000

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
