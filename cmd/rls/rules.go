package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/xds"
)

// rules brings the rules to the service and says when that allows to listen and
// to be called ready.
type rules struct {
	source sources.Source
	sources.Rules
	// tried is closed when rules came for the first time, good or not, or need
	// not come before anyone is answered; ready when the process may be called
	// ready as far as they are concerned.
	tried, ready chan struct{}
}

func newRules(s *settings.Settings, limits *service.Service, measure *metrics.Metrics, log *slog.Logger) (*rules, error) {
	source, err := rulesSource(s, measure, log)
	if err != nil {
		return nil, err
	}
	r := &rules{source: source, tried: make(chan struct{}), ready: make(chan struct{})}
	tried := sync.OnceFunc(func() { close(r.tried) })
	ready := sync.OnceFunc(func() { close(r.ready) })
	// As with the reference, a management server is waited for unless told
	// otherwise. Rules that were refused leave the process healthy unless told
	// otherwise: its answers say what is wrong.
	forced := s.Rules.ForceStartWithoutInitialConfig
	if forced || !s.Rules.OverXDS() {
		tried()
	}
	if forced && !s.Server.HealthyWithAtLeastOneConfigLoaded {
		ready()
	}
	r.Rules = sources.Rules{
		Options: descriptors.Options{MergeDomains: s.Rules.MergeDomainConfig, Charge: charge(s), SkipWrong: s.Rules.ConfigOnError == "skip"},
		Use: func(tree *descriptors.Tree) {
			limits.SetTree(tree)
			measure.InForce(tree)
		},
		Skipped: measure.Skipped(),
		Loaded: func(err error) {
			measure.Loaded(err)
			if err == nil || !s.Server.HealthyWithAtLeastOneConfigLoaded {
				ready()
			}
			tried()
		},
		Log: log,
	}
	return r, nil
}

func (r *rules) run(ctx context.Context) error {
	err := r.source.Run(ctx, r.Publish)
	if errors.Is(err, sources.ErrNoFolder) {
		return fmt.Errorf("rules: %w: it is the folder RUNTIME_APPDIRECTORY in RUNTIME_SUBDIRECTORY in RUNTIME_ROOT. "+
			"To serve the files in ./config: RUNTIME_ROOT=. RUNTIME_SUBDIRECTORY= RUNTIME_APPDIRECTORY=config rls serve. "+
			"To serve no limits: an empty folder", err)
	}
	return err
}

// mayListen waits until the process may listen; false when it ends before.
func (r *rules) mayListen(ctx context.Context) bool {
	select {
	case <-r.tried:
		return true
	case <-ctx.Done():
		return false
	}
}

// whenReady calls do as soon as the process may be called ready, unless ctx
// ends before.
func (r *rules) whenReady(ctx context.Context, do func()) {
	select {
	case <-r.ready:
		do()
	case <-ctx.Done():
	}
}

func rulesSource(s *settings.Settings, measure *metrics.Metrics, log *slog.Logger) (sources.Source, error) {
	if s.Rules.OverXDS() {
		return xdsSource(s, measure, log)
	}
	return &sources.Files{
		Root:           s.Rules.RuntimeRoot,
		Below:          filepath.Join(s.Rules.RuntimeSubdirectory, s.Rules.RuntimeAppdirectory),
		IgnoreDotFiles: s.Rules.RuntimeIgnoredotfiles,
		WatchRoot:      s.Rules.RuntimeWatchRoot,
		Poll:           s.Rules.RuntimePollInterval,
		Gone:           measure.SourceGone(),
		Log:            log,
	}, nil
}

func xdsSource(s *settings.Settings, measure *metrics.Metrics, log *slog.Logger) (*xds.Source, error) {
	x := &s.XDS
	source := &xds.Source{
		Server:          x.ServerURL,
		NodeID:          x.NodeID,
		NodeMetadata:    x.Metadata(),
		Delta:           s.Rules.ConfigType == "GRPC_XDS_DELTA",
		Headers:         x.Headers(),
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
	if x.ServerUseTLS {
		var err error
		if source.TLS, err = xdsTLS(x, log); err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_*_TLS_*: %w", err)
		}
	}
	return source, nil
}

// charge is that of domains that do not say.
func charge(s *settings.Settings) descriptors.Charge {
	if s.Backend.StopCacheKeyIncrementWhenOverlimit {
		return descriptors.ChargeDenying
	}
	return descriptors.ChargeAlways
}
