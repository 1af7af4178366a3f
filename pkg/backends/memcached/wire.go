package memcached

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
)

// keys are the cells that have to be read, each once.
func (j *job) keys(cells []*target) []string {
	var keys []string
	for _, t := range cells {
		if t.read {
			keys = append(keys, t.key)
		}
		for _, i := range t.ops {
			if prev := j.ops[i].Prev; prev != "" {
				keys = append(keys, safeKey(prev))
			}
		}
	}
	if len(keys) > 1 {
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	return keys
}

// get reads cells: one request per server, all at once.
func (j *job) get(keys []string) (map[string]*memcache.Item, error) {
	switch len(keys) {
	case 0:
		return nil, nil
	case 1: // spares the goroutine that GetMulti starts
		item, err := j.client.Get(keys[0])
		if errors.Is(err, memcache.ErrCacheMiss) {
			return nil, nil
		}
		return map[string]*memcache.Item{keys[0]: item}, err
	}
	return j.client.GetMulti(keys)
}

func text(item *memcache.Item) []byte {
	if item == nil {
		return nil
	}
	return item.Value
}

// write writes cells side by side and returns those that have to be tried
// again. In an all-or-nothing batch cells with refunds only come last: when it
// is their turn the batch is admitted, so that a refund never has to be undone.
func (j *job) write(cells []*target) (again []*target, err error) {
	now := cells
	if j.allOrNothing && slices.ContainsFunc(cells, func(t *target) bool { return !t.refunds }) {
		now = slices.DeleteFunc(slices.Clone(cells), func(t *target) bool { return t.refunds })
	}
	errs := make([]error, len(now))
	j.workers.each(len(now), func(i int) {
		if t := now[i]; t.counts {
			errs[i] = j.count(t)
		} else {
			errs[i] = j.swap(t)
		}
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, errRaced) {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(cells), func(t *target) bool { return t.written }), nil
}

// errRaced says that another writer was faster.
var errRaced = errors.New("changed by another writer")

// swap writes a cell as its operations left it, if nobody has changed it since
// it was read.
func (j *job) swap(t *target) error {
	if !t.record.changed {
		t.written = true
		return nil
	}
	item := &memcache.Item{Key: t.key, Value: t.record.encode()}
	var jitter time.Duration
	if t.record.form == plain {
		jitter = j.jitter
	}
	item.Expiration = expiration(t.record.left, jitter, time.Now())
	var err error
	if t.item == nil {
		err = j.client.Add(item)
	} else {
		item.CasID = t.item.CasID
		err = j.client.CompareAndSwap(item)
	}
	switch {
	case err == nil:
		t.written = true
		return nil
	case errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCASConflict), errors.Is(err, memcache.ErrCacheMiss):
		return errRaced
	}
	return fmt.Errorf("write cell %s: %w", t.key, err)
}

// count applies plain charges and refunds, in order.
func (j *job) count(t *target) error {
	for _, i := range t.ops {
		op := &j.ops[i]
		value, err := j.charge(t.key, op)
		if err != nil {
			return fmt.Errorf("count cell %s: %w", t.key, err)
		}
		j.replies[i] = backends.Reply{
			Admitted: op.Times,
			Value:    backends.Amount{Whole: value},
			Prev:     j.replies[i].Prev,
			Until:    op.Until,
		}
	}
	t.written = true
	return nil
}

// charge applies one plain charge or refund and returns the count after it.
func (j *job) charge(key string, op *backends.Op) (int64, error) {
	by := uint64(op.By.Whole * op.Times)
	for range maxRounds {
		var value uint64
		var err error
		if op.Refund {
			value, err = j.client.Decrement(key, by) // stops at 0
		} else {
			value, err = j.client.Increment(key, by)
		}
		switch {
		case err == nil:
			return j.saturate(key, value, by)
		case !errors.Is(err, memcache.ErrCacheMiss):
			return 0, err
		case op.Refund || by == 0:
			return 0, nil
		}
		err = j.client.Add(&memcache.Item{
			Key:        key,
			Value:      strconv.AppendUint(nil, by, 10),
			Expiration: expiration(op.Until-op.Now, j.jitter, time.Now()),
		})
		if err == nil {
			return int64(by), nil
		}
		if !errors.Is(err, memcache.ErrNotStored) { // else another one created it: count on that
			return 0, err
		}
	}
	return 0, fmt.Errorf("it vanished %d times", maxRounds)
}

// saturate takes back what a charge of by raised a count above the bound, long
// before it would wrap at 2^64. Charges that overlap take back their own part
// each.
func (j *job) saturate(key string, value, by uint64) (int64, error) {
	const bound = uint64(backends.MaxValue)
	if value <= bound {
		return int64(value), nil
	}
	_, err := j.client.Decrement(key, min(value-bound, by))
	if err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
		return 0, err
	}
	return backends.MaxValue, nil
}
