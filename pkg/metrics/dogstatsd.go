package metrics

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

// maxTimings is how many timings of one duration are sent at most at once; of
// more a random sample is.
const maxTimings = 100

// dog is a server of DogStatsD.
type dog struct {
	client     *statsd.Client
	mogrifiers []Mogrifier
}

// NewDogStatsdSink sends to addr over UDP, or to a socket unix:///path, with
// tags beside the names. Paths that a mogrifier matches are renamed.
func NewDogStatsdSink(addr string, tags map[string]string, mogrifiers []Mogrifier, log *slog.Logger) (Sink, error) {
	var global []string
	sortedTags(tags, func(key, value string) { global = append(global, key+":"+value) })
	var silent atomic.Bool
	client, err := statsd.New(addr, statsd.WithTags(global), statsd.WithoutTelemetry(), statsd.WithoutClientSideAggregation(),
		statsd.WithErrorHandler(func(err error) {
			if !silent.Swap(true) {
				log.Warn("DogStatsD cannot be reached; it is tried again, without further word", "error", err.Error())
			}
		}))
	if err != nil {
		return nil, fmt.Errorf("DogStatsD at %s: %w", addr, err)
	}
	return &dog{client, mogrifiers}, nil
}

// Open is true: the client connects by itself, and UDP does not tell.
func (*dog) Open() bool { return true }

func (d *dog) Count(path string, n uint64) bool {
	name, tags := mogrify(d.mogrifiers, path)
	_ = d.client.Count(name, int64(n), tags, 1)
	return true
}

func (d *dog) Time(path string, ms int64, calls uint64) {
	name, tags := mogrify(d.mogrifiers, path)
	rate := min(1, maxTimings/float64(calls))
	for range calls {
		_ = d.client.Timing(name, time.Duration(ms)*time.Millisecond, tags, rate)
	}
}

func (d *dog) Flush() { _ = d.client.Flush() }
func (d *dog) Close() { _ = d.client.Close() }
