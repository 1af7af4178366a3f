package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"

	"example.org/rls/pkg/logging"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
)

func newMetrics(s *settings.Settings, log *slog.Logger) (*metrics.Metrics, error) {
	o := metrics.Options{
		MaxSeries:      s.Metrics.MetricsMaxSeries,
		NearLimitRatio: s.Limits.NearLimitRatio,
		Tags:           s.Metrics.Tags(),
		Milliseconds:   s.Metrics.PrometheusResponseTimeAsMilliseconds,
		Log:            log,
	}
	file := s.Metrics.PrometheusMapperYAML
	if file != "" {
		// Envoy Gateway always sets the variable; the file exists only if the
		// operator made one.
		var err error
		if o.Mapping, err = os.ReadFile(file); errors.Is(err, fs.ErrNotExist) {
			log.Warn("PROMETHEUS_MAPPER_YAML does not exist, the usual mapping is taken", "file", file)
		} else if err != nil {
			return nil, fmt.Errorf("PROMETHEUS_MAPPER_YAML: %w", err)
		}
	}
	m, err := metrics.New(o)
	if err != nil && o.Mapping != nil {
		return nil, fmt.Errorf("PROMETHEUS_MAPPER_YAML %s: %w", file, err)
	}
	return m, err
}

// debuggedPerSecond is how many requests a second are logged at debug level.
const debuggedPerSecond = 100

// observers returns the observers of decisions that the settings ask for; the admin API
// reads the counts of measure, too. A process without any does not spend time on them. The
// secret is that of CACHE_KEY_HASH.
func observers(s *settings.Settings, measure *metrics.Metrics, keySecret []byte, stderr io.Writer, log *slog.Logger) []service.Observer {
	var all []service.Observer
	if !s.Metrics.DisableStats || adminOn(s) {
		all = append(all, measure.Observer())
	}
	if s.Log.Decisions > 0 {
		atAnyLevel := logging.New(stderr, "info", s.Log.Format)
		decisions := metrics.NewDecisionLog(s.Log.Decisions, s.Backend.BackendType, keySecret, atAnyLevel)
		if s.Log.DecisionsEntries {
			decisions = decisions.WithEntries()
		}
		all = append(all, decisions)
	}
	if log.Enabled(context.Background(), slog.LevelDebug) {
		all = append(all, metrics.NewDebugLog(debuggedPerSecond, log))
	}
	return all
}

// newStatsd returns a Statsd that sends metrics to the server of statsd or DogStatsD
// that the settings name. It sends nothing if they name none.
func newStatsd(s *settings.Settings, measure *metrics.Metrics, log *slog.Logger) (*metrics.Statsd, error) {
	c := s.Metrics
	addr := net.JoinHostPort(c.StatsdHost, strconv.Itoa(c.StatsdPort))
	var sink metrics.Sink
	var err error
	switch {
	case c.UseDogStatsd:
		var mogrifiers []metrics.Mogrifier
		if mogrifiers, err = dogMogrifiers(&c); err == nil {
			sink, err = metrics.NewDogStatsdSink(addr, c.Tags(), mogrifiers, log)
		}
	case c.UseStatsd:
		sink, err = metrics.NewStatsdSink(c.StatsdProtocol, addr, c.Tags(), log)
	}
	if err != nil {
		return nil, err
	}
	return measure.Statsd(sink, c.StatsFlushInterval), nil
}

func dogMogrifiers(s *settings.Metrics) ([]metrics.Mogrifier, error) {
	var all []metrics.Mogrifier
	for _, name := range s.UseDogStatsdMogrifiers {
		c := s.Mogrifier(name)
		m, err := metrics.NewMogrifier(c.Pattern, c.Name, c.Tags)
		if err != nil {
			return nil, fmt.Errorf("DOG_STATSD_MOGRIFIER_%s_*: %w", name, err)
		}
		all = append(all, m)
	}
	return all, nil
}
