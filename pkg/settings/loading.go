package settings

import (
	"slices"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
)

// RuleSettings are the settings that change what rules mean, or what is reported
// about them. A command that loads rules as serve does embeds them as its flags.
type RuleSettings struct {
	Loading
	Kind
	Sharing
	Tables Tables `embed:"" prefix:"table-" envprefix:"TABLE_"`

	FetchTables bool `help:"Fetch the tables that rules name by an address. Without it their rows are not known, and values have the limits of the rules."`
}

// RuleSettings returns those of the process.
func (s *Settings) RuleSettings() RuleSettings {
	return RuleSettings{Loading: s.Rules.Loading, Kind: s.Backend.Kind, Sharing: s.Store.Sharing}
}

func (s *RuleSettings) conflicts() Errors {
	return append(s.Loading.conflicts(), s.Tables.conflicts()...)
}

// Loading says which files hold rules, and what rules mean where they leave it open.
type Loading struct {
	DefaultStrategy string `env:"DEFAULT_STRATEGY" default:"fixed_window" oneof:"${strategies}" help:"Strategy of limits that name none."`
	DefaultBurst    int    `env:"DEFAULT_BURST" default:"0" min:"0" max:"4294967295" unit:"hits" help:"Burst of limits under DEFAULT_STRATEGY that name none; 0 is the strategy's own."`

	OnError string `env:"ON_ERROR" default:"error" oneof:"error,allow,deny,local" help:"What limits without on_error do while the store is away: error (UNAVAILABLE), allow, deny, or local (each process counts against its share)."`

	LimitShare string `env:"LIMIT_SHARE" help:"Part of every limit, such as 40%, for a region with its own store. It multiplies requests_per_unit, burst and overrides, rounded down, at least 1."`

	StopCacheKeyIncrementWhenOverlimit bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" default:"false" help:"Charge a denied request only to the limits that deny it, in domains without charge."`

	OverlayFile string `aliases:"overlay" env:"OVERLAY_FILE" help:"File or folder of overlays: fields for limits of any source that lack them. Changes are loaded as those of rules."`

	RuntimeIgnoredotfiles bool `env:"RUNTIME_IGNOREDOTFILES" default:"false" help:"Ignore names that start with a dot, but read a ConfigMap's files."`
	MergeDomainConfig     bool `env:"MERGE_DOMAIN_CONFIG" default:"false" help:"Merge the rules of files that describe one domain."`
}

// Kind says which store counts.
type Kind struct {
	BackendType string `env:"BACKEND_TYPE" default:"${backend_type}" oneof:"memory,redis,memcache" help:"Store of the counters."`
}

// Sharing says how many processes share the store.
type Sharing struct {
	Replicas    int    `env:"REPLICAS" default:"0" min:"0" max:"10000" unit:"processes" help:"Processes that share limits with on_error: local while the store is away. 0 is one, with a warning if a limit is local."`
	ReplicasDNS string `env:"REPLICAS_DNS" help:"DNS name with each process's address, such as a headless Service's, looked up every 10s. The last answer stays; REPLICAS holds until the first."`
}

// ReplicasUnknown reports whether nobody has said how many processes share the store.
func (s *Sharing) ReplicasUnknown() bool { return s.Replicas == 0 && s.ReplicasDNS == "" }

func (l *Loading) conflicts() (wrong Errors) {
	strategy, err := algorithms.ParseStrategy(l.DefaultStrategy)
	wrong.require(l.DefaultBurst == 0 || err == nil && strategy.HasBurst(), "DEFAULT_BURST", l.DefaultBurst,
		"0, because DEFAULT_STRATEGY is "+l.DefaultStrategy+", which "+algorithms.NoBurst())
	_, err = algorithms.ParsePercent(l.LimitShare)
	wrong.require(err == nil || l.LimitShare == "", "LIMIT_SHARE", l.LimitShare, "a percentage above 0% and at most 100%, such as 40%")
	return wrong
}

// Share is LIMIT_SHARE; 0 for all of the limits.
func (l *Loading) Share() algorithms.Percent {
	if share, err := algorithms.ParsePercent(l.LimitShare); err == nil && share < algorithms.Whole {
		return share
	}
	return 0
}

// Options returns the options with which rules load under the settings, which the decoder has
// checked. All commands that load rules call it, so that rules mean the same to all of them.
func (s RuleSettings) Options() language.Options {
	o := language.Options{
		MergeDomains:    s.MergeDomainConfig,
		Charge:          descriptors.ChargeAlways,
		Burst:           uint32(s.DefaultBurst),
		ReplicasUnknown: s.Shared() && s.ReplicasUnknown(),
		Share:           s.Share(),
		OnError:         descriptors.Policy(max(0, slices.Index(descriptors.PolicyNames(), s.OnError))),
	}
	o.Strategy, _ = algorithms.ParseStrategy(s.DefaultStrategy)
	if s.StopCacheKeyIncrementWhenOverlimit {
		o.Charge = descriptors.ChargeDenying
	}
	return o
}
