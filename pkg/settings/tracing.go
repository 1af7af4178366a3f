package settings

// Tracing says under which name spans are sent. Their server, interval and batch size
// are set by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_*, OTEL_BSP_*).
type Tracing struct {
	Enabled           bool    `env:"ENABLED" default:"false" help:"Send spans of decisions and of calls to the store, over OTLP. OTEL_EXPORTER_OTLP_ENDPOINT and OpenTelemetry's other variables name the collector and the connection."`
	ServiceName       string  `env:"SERVICE_NAME" default:"RateLimit" help:"service.name of the spans."`
	ServiceNamespace  string  `env:"SERVICE_NAMESPACE" help:"service.namespace of the spans."`
	ServiceInstanceID string  `name:"service-instance-id" env:"SERVICE_INSTANCE_ID" help:"service.instance.id of the spans, such as the pod's name; by default a random UUID."`
	ExporterProtocol  string  `env:"EXPORTER_PROTOCOL" default:"http" oneof:"http,grpc" help:"Transport of OTLP: protobuf over HTTP, or gRPC."`
	SamplingRate      float64 `env:"SAMPLING_RATE" default:"1" min:"0" max:"1" help:"Share of the traces without a parent that are sampled. A caller's trace is sampled if the caller samples it."`
}
