package backends

import "context"

// Spread is a Store whose cells live on several servers, one of which may
// answer while another does not: a Redis Cluster, several memcached servers.
//
// combine keeps a key busy until its operation is decided. With ApplyEach it can
// free each key when the key's own server has answered, and need not wait for
// the slowest server of the batch.
type Spread interface {
	Store
	// ApplyEach is Apply. In addition it calls decided exactly once for each
	// operation of b, with a pointer into b.Ops: as soon as the server of that
	// operation has answered or failed, at the latest before ApplyEach returns.
	// It may call decided from other goroutines, and for several operations at
	// once. decided does not block and does not read b.Replies.
	ApplyEach(ctx context.Context, b *Batch, decided func(*Op)) error
}
