package redis

import (
	"context"
	"math/rand/v2"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
)

// expireEvery is the mean number of plain charges of which one gives the key its
// expiry again, in case that the key has lost it (PERSIST, a restored dump).
const expireEvery = 8

// plain is the charge of one counter whatever its count is, without a script. It
// costs Redis less than count.lua:
//
//	SET key 0 PX lifetime NX
//	INCRBY key cost
//
// SET comes first, so that the key has a lifetime from the moment it exists.
type plain struct {
	key            string
	cost, lifetime int64
}

// isPlain reports whether two plain commands can apply b.
func isPlain(b *backends.Batch) bool {
	return len(b.Ops) == 1 && isCount(&b.Ops[0]) && b.Ops[0].By.Whole > 0
}

// isCount reports whether count.lua can apply op: the charge of a fixed window
// whatever its count is.
func isCount(op *backends.Op) bool {
	return op.Verb == backends.Charge && op.Kind == backends.Counter && op.Span == backends.Fixed && op.Prev == "" &&
		!op.Refund && (op.ChargeDenied || op.Max == backends.NoMax)
}

// commands are the commands in their order. The last one has the count.
func (p *plain) commands() (before []goredis.Cmder, last goredis.Cmder) {
	ctx := context.Background()
	before = append(make([]goredis.Cmder, 0, 2), goredis.NewBoolCmd(ctx, "set", p.key, 0, "px", p.lifetime, "nx"))
	if rand.N(expireEvery) == 0 {
		before = append(before, goredis.NewBoolCmd(ctx, "pexpire", p.key, p.lifetime))
	}
	return before, goredis.NewIntCmd(ctx, "incrby", p.key, p.cost)
}

// isForeign reports whether text is the error of INCRBY for a key that does not hold
// a count.
func isForeign(text string) bool {
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "overflow")
}
