package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/metrics/statsd"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/top"
	"example.org/rls/pkg/tracing"
)

// openSettings reads the files that settings name, and that are neither rules nor for TLS. It begins
// to count and to note what happens to the process.
func (p *process) openSettings(context.Context) (err error) {
	var sender *metrics.Statsd
	var wrong, tokens, secret error
	if p.measure, err = p.newMetrics(); err == nil {
		sender, wrong = p.newStatsd()
	}
	if p.values, secret = p.Backend.ValueHash(); p.Admin.TokenFile != "" {
		p.api.Tokens, tokens = admin.OpenTokens(p.watch, p.Admin.TokenFile)
	}
	if err = errors.Join(wrong, err, secret, tokens); p.measure != nil {
		p.noteEvents()
	}
	if err == nil {
		p.run(p.watch.Run, p.garbage.Run)
	}
	if err == nil && sender != nil {
		p.run(sender.Run)
		p.closes = append(p.closes, sender.Close)
	}
	return err
}

func (p *process) newMetrics() (*metrics.Metrics, error) {
	o := metrics.Options{
		MaxSeries:      p.Metrics.MetricsMaxSeries,
		NearLimitRatio: p.Limits.NearLimitRatio,
		Tags:           p.Metrics.Tags(),
		Milliseconds:   p.Metrics.PrometheusResponseTimeAsMilliseconds,
		Log:            p.log,
	}
	file := p.Metrics.PrometheusMapperYAML
	if file != "" {
		// Envoy Gateway always sets the variable; the file exists only if the operator made one.
		var err error
		if o.Mapping, err = os.ReadFile(file); errors.Is(err, fs.ErrNotExist) {
			p.log.Warn("PROMETHEUS_MAPPER_YAML does not exist, the usual mapping is taken", "file", file)
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

// observe makes the observers of decisions that the settings ask for; the admin API reads the counts
// of the metrics, too. A process without any does not spend time on them.
func (p *process) observe() {
	add := func(o service.Observer) { p.observers = append(p.observers, o) }
	if !p.Metrics.DisableStats || p.adminOn() {
		add(p.measure.Observer())
	}
	if lines := p.decisionLog(); lines.On() {
		add(lines)
	}
	if p.Top.Keys > 0 && (p.Top.Metric > 0 || p.adminOn()) {
		t := p.newTop()
		add(t)
		p.api.Top, p.api.Memories = t, append(p.api.Memories, t)
	}
	if p.Denials.Keep > 0 && p.adminOn() {
		d := denials.New(denials.Options{Keep: p.Denials.Keep, Hash: p.values})
		p.keep("denials", d)
		p.share("denials", d)
		add(d)
		p.api.Denials, p.api.Memories = d, append(p.api.Memories, d)
	}
}

// decisionLog writes its lines at any level of the log, except the lines of single requests.
func (p *process) decisionLog() *metrics.DecisionLog {
	o := metrics.LogOptions{
		Share: p.Log.Decisions, Denials: p.Log.Denials, Thresholds: p.Log.Thresholds,
		Values: p.values, Entries: p.Log.DecisionsEntries, Backend: p.Backend.BackendType,
		Log: newLog(p.stderr, "info", p.Log.Format),
	}
	if p.log.Enabled(context.Background(), slog.LevelDebug) {
		o.Requests, o.Log = debuggedPerSecond, p.log
	}
	return metrics.NewDecisionLog(o)
}

// newTop returns the counter of heavy hitters, some of which may be metrics.
func (p *process) newTop() *top.Top {
	t := top.New(top.Options{
		Keys: p.Top.Keys, StoredKey: p.Backend.StoredKey,
		Assigned: func(domain string, entries []descriptors.Entry) (int64, float64) {
			return p.quotas.Assigned(domain, entries)
		},
	})
	if n := p.Top.Metric; n > 0 {
		p.measure.Limited(func(tell metrics.TellKey) {
			t.Table(top.Query{By: "denied", N: n}).Tell(p.Top.MetricHash, tell)
		})
	}
	return t
}

// openTracer starts tracing if it is on; a nil tracer makes no spans.
func (p *process) openTracer(ctx context.Context) (err error) {
	t := &p.Tracing
	if !t.Enabled {
		return nil
	}
	p.closes = append(p.closes, func() {
		if err := p.tracer.Close(); err != nil {
			p.log.Warn("spans are lost", "error", err.Error())
		}
	})
	o := t.Options
	o.Version, _ = cli.Build()
	o.Log = p.log
	p.tracer, err = tracing.Open(ctx, o)
	return err
}

// newStatsd returns a Statsd that sends metrics to the server of statsd or DogStatsD
// that the settings name; nil without such a server.
func (p *process) newStatsd() (*metrics.Statsd, error) {
	c := &p.Metrics
	addr := hostPort(c.StatsdHost, c.StatsdPort)
	var sink statsd.Sink
	var err error
	switch {
	case c.UseDogStatsd:
		var mogrifiers []statsd.Mogrifier
		if mogrifiers, err = dogMogrifiers(c); err == nil {
			sink, err = statsd.NewDogSink(addr, c.Tags(), mogrifiers, p.log)
		}
	case c.UseStatsd:
		sink = statsd.NewSink(c.StatsdProtocol, addr, c.Tags(), p.log)
	}
	if err != nil || sink == nil {
		return nil, err
	}
	return p.measure.Statsd(sink, c.StatsFlushInterval), nil
}

func dogMogrifiers(s *settings.Metrics) ([]statsd.Mogrifier, error) {
	var all []statsd.Mogrifier
	for _, name := range s.UseDogStatsdMogrifiers {
		c := s.Mogrifier(name)
		m, err := statsd.NewMogrifier(c.Pattern, c.Name, c.Tags)
		if err != nil {
			return nil, fmt.Errorf("%s_*: %w", c.Prefix, err)
		}
		all = append(all, m)
	}
	return all, nil
}
