package settings

// Tracing says as whom spans are sent. Where to, how often and how many at once
// is for OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_*, OTEL_BSP_*).
type Tracing struct {
	Enabled           bool    `env:"ENABLED" default:"false" help:"Send spans of decisions and of the store's part in them, over OTLP. OTEL_EXPORTER_OTLP_ENDPOINT and OpenTelemetry's other variables say where to and how."`
	ServiceName       string  `env:"SERVICE_NAME" default:"RateLimit" help:"The spans' service.name."`
	ServiceNamespace  string  `env:"SERVICE_NAMESPACE" help:"Their service.namespace."`
	ServiceInstanceID string  `name:"service-instance-id" env:"SERVICE_INSTANCE_ID" help:"Their service.instance.id, such as the pod's name; a random UUID by default."`
	ExporterProtocol  string  `env:"EXPORTER_PROTOCOL" default:"http" oneof:"http,grpc" help:"How OTLP is spoken: protobuf over HTTP, or gRPC."`
	SamplingRate      float64 `env:"SAMPLING_RATE" default:"1" min:"0" max:"1" help:"The share of traces that begin here which are sampled. A caller's trace is sampled if the caller says so."`
}
