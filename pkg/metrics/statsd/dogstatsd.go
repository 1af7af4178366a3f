package statsd

import (
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"

	datadog "github.com/DataDog/datadog-go/v5/statsd"
)

// maxTimings bounds the timings of one duration that are sent at once: of more
// calls the client sends a random sample.
const maxTimings = 100

// dog sends to a server of DogStatsD.
type dog struct {
	client     *datadog.Client
	mogrifiers []Mogrifier
}

// NewDogSink returns a sink that sends to addr over UDP, or to the socket unix:///path,
// with the tags in each line. The first mogrifier that matches a path renames it. Only the
// first failure is logged.
func NewDogSink(addr string, tags map[string]string, mogrifiers []Mogrifier, log *slog.Logger) (Sink, error) {
	var global []string
	sortedTags(tags, func(key, value string) { global = append(global, key+":"+value) })
	var silent atomic.Bool
	client, err := datadog.New(addr, datadog.WithTags(global), datadog.WithoutTelemetry(), datadog.WithoutClientSideAggregation(),
		datadog.WithErrorHandler(func(err error) {
			if !silent.Swap(true) {
				log.Warn("DogStatsD cannot be reached; it is tried again, and further failures are not logged", "error", err.Error())
			}
		}))
	if err != nil {
		return nil, fmt.Errorf("DogStatsD at %s: %w", addr, err)
	}
	return &dog{client, mogrifiers}, nil
}

func (d *dog) Send(of Kind, path string, value, calls uint64) bool {
	name, tags := mogrify(d.mogrifiers, path)
	switch of {
	case Growth:
		_ = d.client.Count(name, int64(value), tags, 1)
	case Level:
		_ = d.client.Gauge(name, float64(value), tags, 1)
	case Timing:
		rate := min(1, maxTimings/float64(calls))
		for range calls {
			_ = d.client.TimeInMilliseconds(name, float64(value), tags, rate)
		}
	}
	return true
}

func (d *dog) Flush() { _ = d.client.Flush() }
func (d *dog) Close() { _ = d.client.Close() }

// Mogrifier renames the paths that its pattern matches, and turns parts of them
// into tags.
type Mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    []tag
}

type tag struct{ key, value string }

// NewMogrifier returns a mogrifier. In name and in the values of tags, $1 stands
// for the text that the first group of the pattern matched. The error says which
// argument is wrong.
func NewMogrifier(pattern, name string, tags map[string]string) (Mogrifier, error) {
	re, err := regexp.Compile(pattern)
	switch {
	case pattern == "":
		return Mogrifier{}, fmt.Errorf("pattern is missing")
	case err != nil:
		return Mogrifier{}, fmt.Errorf("pattern: %w", err)
	case name == "":
		return Mogrifier{}, fmt.Errorf("name is missing")
	}
	m := Mogrifier{pattern: re, name: name}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key == "" || tags[key] == "" {
			return Mogrifier{}, fmt.Errorf("tag %q:%q: want key:value", key, tags[key])
		}
		m.tags = append(m.tags, tag{key, tags[key]})
	}
	return m, nil
}

var group = regexp.MustCompile(`\$\d+`)

// mogrify applies the first mogrifier that matches path. A path without one
// stays as it is.
func mogrify(mogrifiers []Mogrifier, path string) (name string, tags []string) {
	for i := range mogrifiers {
		m := &mogrifiers[i]
		groups := m.pattern.FindStringSubmatch(path)
		if groups == nil {
			continue
		}
		expand := func(template string) string {
			return group.ReplaceAllStringFunc(template, func(ref string) string {
				if i, err := strconv.Atoi(ref[1:]); err == nil && i < len(groups) {
					return groups[i]
				}
				return ref
			})
		}
		for _, t := range m.tags {
			tags = append(tags, without(inTags, t.key)+":"+without(inDogTags, expand(t.value)))
		}
		return expand(m.name), tags
	}
	return path, nil
}
