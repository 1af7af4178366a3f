package settings

import "example.org/rls/pkg/algorithms"

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
	DefaultStrategy string `env:"DEFAULT_STRATEGY" default:"fixed_window" oneof:"${strategies}" help:"The strategy of limits whose rules have none, such as those that Envoy Gateway sends. concurrency stands in rules only, because its callers have to give slots back."`
	DefaultBurst    int    `env:"DEFAULT_BURST" default:"0" min:"0" max:"4294967295" unit:"hits" help:"The burst of limits that DEFAULT_STRATEGY decides and whose rules have none; 0 is the strategy's own."`

	OnError string `env:"ON_ERROR" default:"error" oneof:"error,allow,deny,local" help:"What happens to the hits of limits without on_error while the store cannot decide: the request is answered UNAVAILABLE (error), they pass (allow), they are denied (deny), or each process counts them against its share of the limit (local)."`

	LimitShare string `env:"LIMIT_SHARE" help:"The part of every limit that this process and its store decide, such as 40% where each region has a store of its own. requests_per_unit, burst and overrides are multiplied by it, rounded down but at least 1. /rlconfig shows it. Empty is all of it."`

	StopCacheKeyIncrementWhenOverlimit bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" default:"false" help:"Charge a denied request only to the limits that deny it, in domains without a field charge."`

	OverlayFile string `aliases:"overlay" env:"OVERLAY_FILE" help:"File with overlays, or folder of such files: fields of limits such as strategy and burst, laid over rules of any source that have not written them. Changes are loaded as those of rules are."`

	RuntimeIgnoredotfiles bool `env:"RUNTIME_IGNOREDOTFILES" default:"false" help:"Ignore files and folders whose name starts with a dot. A ConfigMap's ..data is never read itself, and its files always are."`
	MergeDomainConfig     bool `env:"MERGE_DOMAIN_CONFIG" default:"false" help:"Let several files describe one domain; their rules are merged."`
}

// Kind says which store counts.
type Kind struct {
	BackendType string `env:"BACKEND_TYPE" default:"${backend_type}" oneof:"memory,redis,memcache" help:"The store that keeps the counters."`
}

// Sharing says how many processes share the store.
type Sharing struct {
	Replicas    int    `env:"REPLICAS" default:"0" min:"0" max:"10000" unit:"processes" help:"Number of processes that share the store; 0 is one, with a warning if a limit has on_error: local. While the store is away, each of them admits its part of the limits with on_error: local."`
	ReplicasDNS string `env:"REPLICAS_DNS" help:"Name in DNS with an address for each process that shares the store, such as a headless Service, in place of REPLICAS. It is looked up every 10s; the last answer stays, and until the first one REPLICAS holds."`
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
