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

// commands are the commands in their order. The last one has the count.
func (p *plain) commands() (before []goredis.Cmder, last goredis.Cmder) {
	ctx := context.Background()
	before = append(make([]goredis.Cmder, 0, 2), goredis.NewBoolCmd(ctx, "set", p.key, 0, "px", p.lifetime, "nx"))
	if rand.N(expireEvery) == 0 {
		before = append(before, goredis.NewBoolCmd(ctx, "pexpire", p.key, p.lifetime))
	}
	return before, goredis.NewIntCmd(ctx, "incrby", p.key, p.cost)
}

// count is the count that plain commands have answered; noCount if the key does not
// hold a count. It has count.lua look at a key whose count is too large, or which may have
// no expiry because SET was refused and INCRBY was not.
func (c *call) count(ctx context.Context, to servers) (int64, error) {
	if c.err != nil {
		if answered(c.err) && isForeign(c.err.Error()) {
			return noCount, nil
		}
		return 0, c.err
	}
	n := max(noCount, c.trip.cmd.(*goredis.IntCmd).Val())
	if n > backends.MaxValue || c.trip.before[0].Err() != nil {
		p := &c.eval.plain
		look := call{eval: eval{script: &countScript, args: []any{"evalsha", countScript.sha, 1, p.key, 0, p.lifetime}}}
		if look.start(ctx, to); look.err == nil {
			_ = look.settle(ctx, to) // the charge is done all the same
		}
	}
	return min(n, backends.MaxValue), nil
}

// isForeign reports whether text is the error of INCRBY for a key that does not hold
// a count.
func isForeign(text string) bool {
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "overflow")
}
