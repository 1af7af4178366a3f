package main

import (
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
)

func serviceConfig(s *settings.Settings, store backends.Store, observers []service.Observer) service.Config {
	reply := service.Reply{
		IETF:        s.Limits.LimitIETFHeadersEnabled,
		XRateLimit:  s.Limits.LimitXRatelimitHeadersEnabled,
		RetryAfter:  s.Limits.LimitRetryAfterHeaderEnabled,
		ProblemBody: s.Limits.LimitProblemBodyEnabled,
		Metadata:    s.Limits.ResponseDynamicMetadata,
	}
	names := service.HeaderNames{
		Limit:     s.Limits.LimitLimitHeader,
		Remaining: s.Limits.LimitRemainingHeader,
		Reset:     s.Limits.LimitResetHeader,
	}
	if s.Limits.LimitResponseHeadersEnabled {
		reply.RateLimit = names
	}
	if s.Limits.LimitRequestHeadersEnabled {
		reply.Upstream = names
	}
	return service.Config{
		Store:     store,
		KeyPrefix: s.Backend.CacheKeyPrefix,

		RatelimitKeys: s.Backend.CacheKeyFormat == "ratelimit",

		Caps: service.Caps{
			Descriptors: s.Request.MaxDescriptors,
			Entries:     s.Request.MaxEntries,
			EntryBytes:  s.Request.MaxEntryBytes,
		},
		ShadowMode: s.Limits.ShadowMode,
		QuotaMode:  s.Limits.QuotaMode,
		Reply:      reply,
		Observers:  observers,
	}
}
