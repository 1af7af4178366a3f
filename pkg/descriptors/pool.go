package descriptors

import (
	"example.org/rls/internal/document"
	"example.org/rls/pkg/algorithms"
)

// Borrow says from which pool a limit takes the hits that it denies itself.
type Borrow struct {
	From string             // the name of the pool
	Most algorithms.Percent // of the pool that one key may have borrowed; above 0
	Pool *Rule              // see NewPool
	// Cell counts what one key has borrowed: the pool's limit with Most of its amounts.
	Cell Limit
}

// NewPool returns the pool of a domain that has that limit. It matches no descriptor.
func NewPool(domain, name string, l Limit, pos document.Position) *Rule {
	return &Rule{Limits: []Limit{l}, Pool: name, Path: Printable(domain + ".pool_" + name), Pos: pos, FixedMetricKey: true}
}

// PoolMark is the mark of the limits of pools, with which no descriptor has their keys.
const PoolMark = "~pool"

// Lend lets b borrow from pool. mark is that of the limit that borrows. The error is that of
// [algorithms.New].
func (b *Borrow) Lend(pool *Rule, mark string) (err error) {
	b.Pool, b.Cell = pool, pool.Limits[0]
	spec := b.Cell.Spec
	spec.Requests, spec.Burst, spec.Mark = b.Most.Of(spec.Requests), b.Most.Of(spec.Burst), "~borrow"+mark
	b.Cell.Limit, err = algorithms.New(spec)
	return err
}

// AppendID appends what ends the name of a caller, as [AppendID] makes it, in the keys of
// Cell.
func (b *Borrow) AppendID(dst []byte) []byte {
	return appendEscaped(append(dst, "|borrow="...), b.From, inValue)
}

// PoolEntries are the entries whose name, as [AppendID] makes it, is that of the pool.
func (r *Rule) PoolEntries() []Entry { return []Entry{{Key: "pool", Value: r.Pool}} }
