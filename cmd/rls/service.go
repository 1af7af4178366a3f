package main

import (
	"context"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
)

// openService makes the service and the observers of its decisions.
func (p *process) openService(context.Context) (err error) {
	p.top = p.newTop()
	p.limits, err = newService(p.Settings, p.store, p.secret, p.observers())
	return err
}

// newService returns the service that the settings describe. The secret is that of
// CACHE_KEY_HASH.
func newService(s *settings.Settings, store backends.Store, keySecret []byte, observers []service.Observer) (*service.Service, error) {
	return service.New(service.Config{
		Store: store,
		Local: backendOf(s).shared,

		KeyPrefix:     s.Backend.CacheKeyPrefix,
		RatelimitKeys: s.Backend.CacheKeyFormat == "ratelimit",
		KeySecret:     keySecret,
		StoredKey:     backendOf(s).storedKey,

		Caps: service.Caps{
			Descriptors: s.Request.MaxDescriptors,
			Entries:     s.Request.MaxEntries,
			EntryBytes:  s.Request.MaxEntryBytes,
		},
		ShadowMode: s.Limits.ShadowMode,
		QuotaMode:  s.Limits.QuotaMode,
		Observers:  observers,
	})
}
