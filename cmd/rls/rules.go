package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/xds"
)

// rules puts the rules of the source in force, reports them to Health, and says
// when the process may listen.
type rules struct {
	source sources.Source
	sources.Rules
	// tried is closed when rules came for the first time, good or refused, or
	// when the process need not wait for them to listen.
	tried chan struct{}
}

// newRules lets the process listen at once with rules from files; a management
// server is waited for unless the settings force the start, as in
// envoyproxy/ratelimit. Without rules in force the process is healthy only when
// the start is forced and no domain is needed.
func newRules(s *settings.Settings, limits *service.Service, health *server.Health, watch *reread.Watcher, measure *metrics.Metrics, loading func(bool), log *slog.Logger) (*rules, error) {
	options, err := serveOptions(s)
	if err != nil {
		return nil, err
	}
	source, err := rulesSource(s, watch, measure, loading, log)
	if err != nil {
		return nil, err
	}
	r := &rules{source: source, tried: make(chan struct{})}
	tried := sync.OnceFunc(func() { close(r.tried) })
	domainNeeded := s.Server.HealthyWithAtLeastOneConfigLoaded
	if s.Rules.ForceStartWithoutInitialConfig {
		health.Rules(!domainNeeded)
	}
	if s.Rules.ForceStartWithoutInitialConfig || !s.Rules.OverXDS() {
		tried()
	}
	r.Rules = sources.Rules{
		Options: options,
		Use: func(tree *descriptors.Tree) {
			limits.SetTree(tree)
			measure.InForce(tree)
			health.Rules(!domainNeeded || len(tree.Domains()) > 0)
		},
		Skipped: measure.Skipped(),
		Loaded: func(err error) {
			measure.Loaded(err)
			tried()
		},
		Log: log,
	}
	return r, nil
}

// tell has the status hear of rules that come into force, of warnings and of refused rules.
func (r *rules) tell(s *status.Status) {
	use, loaded := r.Use, r.Loaded
	r.Use = func(tree *descriptors.Tree) {
		s.Rules(tree)
		use(tree)
	}
	r.Warned = s.Warned
	r.Loaded = func(err error) {
		s.Loaded(err)
		loaded(err)
	}
}

func (r *rules) run(ctx context.Context) error {
	if err := r.source.Run(ctx, r.Publish); err != nil {
		return fmt.Errorf("rules: %w", explainNoFolder(err))
	}
	return nil
}

// serveOptions is how rules load to be served.
func serveOptions(s *settings.Settings) (language.Options, error) {
	options, err := ruleOptions(s.RuleSettings())
	options.SkipWrong = s.Rules.ConfigOnError == "skip"
	return options, err
}

// explainNoFolder adds advice to the error of a source whose folder does not exist.
func explainNoFolder(err error) error {
	if errors.Is(err, sources.ErrNoFolder) {
		return fmt.Errorf("%w: it is the folder RUNTIME_APPDIRECTORY in RUNTIME_SUBDIRECTORY in RUNTIME_ROOT. "+
			"To serve the files in ./config: RUNTIME_ROOT=. RUNTIME_SUBDIRECTORY= RUNTIME_APPDIRECTORY=config rls serve. "+
			"To serve no limits: an empty folder", err)
	}
	return err
}

// mayListen waits until the process may listen. It returns false when ctx ends
// before.
func (r *rules) mayListen(ctx context.Context) bool {
	select {
	case <-r.tried:
		return true
	case <-ctx.Done():
		return false
	}
}

func rulesSource(s *settings.Settings, watch *reread.Watcher, measure *metrics.Metrics, loading func(bool), log *slog.Logger) (sources.Source, error) {
	if s.Rules.OverXDS() {
		return xdsSource(s, watch, measure, log)
	}
	return &sources.Files{
		Root:           s.Rules.RuntimeRoot,
		Below:          filepath.Join(s.Rules.RuntimeSubdirectory, s.Rules.RuntimeAppdirectory),
		IgnoreDotFiles: s.Rules.RuntimeIgnoredotfiles,
		WatchRoot:      s.Rules.RuntimeWatchRoot,
		Poll:           s.Rules.RuntimePollInterval,
		Gone:           measure.SourceGone(),
		Loading:        loading,
		Log:            log,
	}, nil
}

func xdsSource(s *settings.Settings, watch *reread.Watcher, measure *metrics.Metrics, log *slog.Logger) (*xds.Source, error) {
	x := &s.XDS
	source := &xds.Source{
		Server:          x.ServerURL,
		NodeID:          x.NodeID,
		NodeMetadata:    x.Metadata(),
		Delta:           s.Rules.ConfigType == "GRPC_XDS_DELTA",
		MaxMessageBytes: s.XDSClient.MaxMsgSizeInBytes,
		Backoff: xds.Backoff{
			Unreachable: x.ServerConnectRetryInterval,
			Ended:       s.XDSClient.BackoffInitialInterval,
			Max:         s.XDSClient.BackoffMaxInterval,
			Factor:      s.XDSClient.BackoffRandomFactor,
			Jitter:      s.XDSClient.BackoffJitter,
		},
		Connected: measure.Connected(),
		Log:       log,
	}
	var err error
	if source.Headers, err = xdsHeaders(watch, x); err != nil {
		return nil, err
	}
	if x.ServerUseTLS {
		if source.TLS, err = xdsTLS(watch, x); err != nil {
			return nil, err
		}
	}
	return source, nil
}
