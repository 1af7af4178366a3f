package stack_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/stack"
)

// half decides the first operation at once and the others never.
type half struct{ backends.Store }

func (half) Apply(ctx context.Context, b *backends.Batch) error {
	<-ctx.Done()
	for i := range b.Ops[1:] {
		b.Replies[1+i].Err = errors.Join(backends.ErrUnavailable, ctx.Err())
	}
	return b.Err()
}

// TestTheAnswerComesInTime: Apply returns before the caller's deadline, or after
// the timeout, with the replies to the operations that were decided by then.
func TestTheAnswerComesInTime(t *testing.T) {
	for _, c := range []struct {
		name            string
		caller, timeout time.Duration // caller 0: without a deadline
		want            time.Duration
		message         string
		cancelled       bool
	}{
		{"a tenth earlier", 20 * time.Millisecond, time.Second, 18 * time.Millisecond, "no answer within 18ms", false},
		{"50 ms earlier at most", 10 * time.Second, time.Minute, 9950 * time.Millisecond, "no answer within 9.95s", false},
		{"no deadline", 0, time.Second, time.Second, "no answer within 1s", false},
		{"a later deadline", time.Minute, time.Second, time.Second, "no answer within 1s", false},
		{"a deadline that has passed", time.Nanosecond, time.Second, 0, "no answer within 0s", false},
		{"the caller gives up", 0, time.Second, 20 * time.Millisecond, "context canceled", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stack.Deadline(half{}, c.timeout)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.caller > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.caller)
					defer cancel()
				}
				if c.cancelled {
					time.AfterFunc(c.want, cancel)
				}
				begin := time.Now()
				b := backends.Batch{Ops: make([]backends.Op, 2), Replies: make([]backends.Reply, 2)}
				err := s.Apply(ctx, &b)
				if took := time.Since(begin); took != c.want {
					t.Errorf("took %v, want %v", took, c.want)
				}
				if !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), c.message) {
					t.Errorf("got %v, want %s", err, c.message)
				}
				if b.Replies[0].Err != nil || !errors.Is(err, b.Replies[1].Err) {
					t.Errorf("got %+v", b.Replies)
				}
			})
		})
	}
}
