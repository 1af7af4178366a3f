package commands

import (
	"context"
	"strings"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// RequestFlags are the flags that describe a request, or name a pool in its place.
type RequestFlags struct {
	Domain     string   `placeholder:"NAME" default:"${domain}" help:"Domain of the request, or $RLS_DOMAIN; not needed if the rules have one domain."`
	Descriptor []string `sep:"none" placeholder:"KEY=VALUE,..." help:"${descriptor}"`
	Pool       *string  `placeholder:"NAME" help:"Pool of the domain, in place of --descriptor."`
	Limit      *string  `placeholder:"N/UNIT" help:"Limit in place of those of the rules, such as 100/hour or 100/2*hour, as requests bring it along. Without it the limit counts that the last request brought, if it brought one."`
}

// DescriptorUsage is the help of --descriptor, which RequestFlags take from the variable descriptor.
const DescriptorUsage = `Entries of a descriptor, separated by commas. In JSON where a comma is part of a value: '{"KEY": "VALUE"}' or '[{"key": "KEY", "value": "VALUE"}]', in which raw and raw_key can have the bytes in base64. Repeat the flag for several descriptors.`

// Request is the request that the flags describe, with at least one descriptor or a pool. Its errors
// are usage errors.
func (f *RequestFlags) Request() (*operate.Question, error) {
	request := new(operate.About(f.Domain))
	switch {
	case f.Pool == nil && len(f.Descriptor) == 0:
		return nil, cli.UsageError("name a --descriptor, such as --descriptor plan=free,user=ann, or a --pool")
	case f.Pool == nil:
	case *f.Pool == "":
		return nil, cli.UsageError("--pool is empty: want the name of a pool of the rules")
	case len(f.Descriptor) > 0 || f.Limit != nil:
		return nil, cli.UsageError("--pool is in place of a request: want no --descriptor and no --limit beside it")
	default:
		request.Pool = *f.Pool
	}
	var err error
	request.Descriptors, err = ParseDescriptors(f.Descriptor, f.Limit)
	return request, err
}

// adminCall are the flags of a command that asks the admin API of one process about a request.
type adminCall struct {
	RequestFlags
	adminAsk
}

// asked returns the request of the flags, whose domain it asks for if that is empty. Wrong flags
// are usage errors.
func (c *adminCall) asked(ctx context.Context) (*operate.Question, error) {
	request, err := c.Request()
	if err == nil {
		err = c.fillDomain(ctx, c.Addr, &request.Domain)
	}
	return request, err
}

// ParseDescriptors reads the texts of --descriptor, and of --limit unless it is nil. Its
// errors are usage errors.
func ParseDescriptors(texts []string, limit *string) ([]service.Descriptor, error) {
	var override *service.Override
	if limit != nil {
		rate, err := descriptors.ParseLimit(*limit)
		if err != nil {
			return nil, cli.UsageError("--limit: %w", err)
		}
		override = &rate
	}
	all := make([]service.Descriptor, len(texts))
	for i, text := range texts {
		var err error
		all[i].Limit = override
		if all[i].Entries, err = ask.ParseDescriptor(text); err != nil {
			return nil, cli.UsageError("%w", err)
		}
	}
	return all, nil
}

// OnlyDomain returns the only one of the domains of rules. Its errors are usage errors.
func OnlyDomain(names []string) (string, error) {
	switch len(names) {
	case 0:
		return "", cli.UsageError("name a --domain: the rules have none yet")
	case 1:
		return names[0], nil
	}
	return "", cli.UsageError("name a --domain: the rules have %s", strings.Join(names, ", "))
}
