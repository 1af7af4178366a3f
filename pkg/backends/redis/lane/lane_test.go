package lane

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
)

const bufferSize = 64 << 10

// far is a server at the end of a network on the bubble's fake clock.
type far struct {
	trip     func() time.Duration // the round trip of the next pipeline
	commands atomic.Int64
	batches  atomic.Int64
}

func (f *far) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		buf := make([]byte, bufferSize)
		for {
			n, err := there.Read(buf)
			if err != nil {
				return
			}
			commands, answer := bytes.Count(buf[:n], []byte("ping")), "+PONG\r\n"
			if commands == 0 { // a greeting
				commands, answer = bytes.Count(buf[:n], []byte("\n*"))+1, "-ERR unknown command\r\n"
			}
			f.commands.Add(int64(commands))
			f.batches.Add(1)
			<-time.After(f.trip())
			if _, err := there.Write(bytes.Repeat([]byte(answer), commands)); err != nil {
				return
			}
		}
	}()
	return here, nil
}

// lane returns a lane to the server with ten connections.
func (f *far) lane(t *testing.T) *Lane {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{
		Addr: "127.0.0.1:1", Dialer: f.dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 10, MaxActiveConns: 10,
		PipelinePoolSize: -1, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		ReadTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	watch := &breaker.Watch{MaxInFlight: 1 << 20, Slow: time.Minute}
	l := New(client, func() string { return "far" }, &Dialer{}, watch.Server("far"), nil)
	t.Cleanup(func() {
		l.Close()
		l.Drain()
		_ = client.Close()
	})
	return l
}

// steadily pings n times at a rate per second, and returns the share that was
// answered within patience. The first 500 are not counted.
func steadily(l *Lane, rng *rand.Rand, rate, n int, patience time.Duration) float64 {
	var good atomic.Int64
	var calls sync.WaitGroup
	for i := range n + 500 {
		<-time.After(time.Duration(rng.ExpFloat64() * float64(time.Second) / float64(rate)))
		calls.Go(func() {
			start := time.Now()
			if l.Ping(context.Background()) == nil && time.Since(start) <= patience && i >= 500 {
				good.Add(1)
			}
		})
	}
	calls.Wait()
	return float64(good.Load()) / float64(n)
}

// closed has so many callers ping one time after the other, and returns the
// commands per second and the commands per batch.
func (f *far) closed(l *Lane, callers int, during time.Duration) (perSecond, perBatch float64) {
	end := time.Now().Add(during)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				_ = l.Ping(context.Background())
			}
		})
	}
	all.Wait()
	return float64(f.commands.Load()) / during.Seconds(), float64(f.commands.Load()) / float64(f.batches.Load())
}

// TestWaits: a command to a slow server waits for its own round trip and little
// more, at 500 commands per second.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name          string
		delay, jitter time.Duration // each way
		patience      time.Duration
		want          float64
	}{
		{"5 ± 5 ms each way within Envoy's 20 ms less the margin", 5 * time.Millisecond, 5 * time.Millisecond, 18 * time.Millisecond, 0.95},
		{"50 ms each way within DECISION_TIMEOUT", 50 * time.Millisecond, 0, 150 * time.Millisecond, 0.99},
		{"50 ± 10 ms each way within DECISION_TIMEOUT", 50 * time.Millisecond, 10 * time.Millisecond, 150 * time.Millisecond, 0.99},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := testenv.Random(t)
				way := func() time.Duration { return c.delay + time.Duration((2*rng.Float64()-1)*float64(c.jitter)) }
				f := &far{trip: func() time.Duration { return way() + way() }}
				share := steadily(f.lane(t), rng, 500, 4000, c.patience)
				t.Logf("%.1f %% were answered in time", 100*share)
				if share < c.want {
					t.Errorf("%.1f %% of the commands were answered in time, want %.0f", 100*share, 100*c.want)
				}
			})
		})
	}
}

func TestManyCommandsToADistantServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{trip: func() time.Duration { return 80 * time.Millisecond }}
		perSecond, _ := f.closed(f.lane(t), 3000, 10*time.Second)
		t.Logf("%.0f commands per second", perSecond)
		if perSecond < 20_000 {
			t.Errorf("%.0f commands per second, want 20,000", perSecond)
		}
	})
}

// TestRetiredLane: the goroutines of a lane to a node that has left its cluster end, and a
// late command is answered all the same.
func TestRetiredLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{trip: func() time.Duration { return time.Millisecond }}
		l := f.lane(t)
		f.closed(l, 10, time.Second)
		l.Retire()
		l.Drain() // waits for ever for a goroutine that stays, which ends the test
		if err := l.Ping(t.Context()); err != nil {
			t.Errorf("a late command: %v", err)
		}
		l.Drain()
	})
}

// TestCallersShareBatches: 64 callers of a server nearby need few system calls.
func TestCallersShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{trip: func() time.Duration { return 200 * time.Microsecond }}
		if _, perBatch := f.closed(f.lane(t), 64, time.Second); perBatch < 30 { // half of them wait while the others are under way
			t.Errorf("%.1f commands per batch, want 32", perBatch)
		}
	})
}
