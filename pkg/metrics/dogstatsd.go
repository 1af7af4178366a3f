package metrics

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

// maxTimings bounds the timings of one duration that are sent at once: of more
// calls the client sends a random sample.
const maxTimings = 100

// dog sends to a server of DogStatsD.
type dog struct {
	client     *statsd.Client
	mogrifiers []Mogrifier
}

// NewDogStatsdSink returns a sink that sends to addr over UDP, or to the socket
// unix:///path, with the tags in each line. The first mogrifier that matches a
// path renames it. The first failure is logged.
func NewDogStatsdSink(addr string, tags map[string]string, mogrifiers []Mogrifier, log *slog.Logger) (Sink, error) {
	var global []string
	sortedTags(tags, func(key, value string) { global = append(global, key+":"+value) })
	var silent atomic.Bool
	client, err := statsd.New(addr, statsd.WithTags(global), statsd.WithoutTelemetry(), statsd.WithoutClientSideAggregation(),
		statsd.WithErrorHandler(func(err error) {
			if !silent.Swap(true) {
				log.Warn("DogStatsD cannot be reached; it is tried again, and further failures are not logged", "error", err.Error())
			}
		}))
	if err != nil {
		return nil, fmt.Errorf("DogStatsD at %s: %w", addr, err)
	}
	return &dog{client, mogrifiers}, nil
}

// Open returns true: the client connects by itself.
func (*dog) Open() bool { return true }

func (d *dog) Count(path string, n uint64) bool {
	name, tags := mogrify(d.mogrifiers, path)
	_ = d.client.Count(name, int64(n), tags, 1)
	return true
}

func (d *dog) Gauge(path string, value uint64) bool {
	name, tags := mogrify(d.mogrifiers, path)
	_ = d.client.Gauge(name, float64(value), tags, 1)
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
