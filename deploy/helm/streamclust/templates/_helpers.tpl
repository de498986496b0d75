{{- define "streamclust.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "streamclust.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "streamclust.labels" -}}
{{ include "streamclust.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamclust.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "streamclust.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* Settings: those of the chart last, since probes and rollouts rely on them. */ -}}
{{- define "streamclust.settings" -}}
{{- $http := dict "enabled" true "host" "0.0.0.0" "port" (int .Values.port) -}}
{{- mergeOverwrite (deepCopy .Values.config) (dict "state" "kafka" "http" $http) | toToml }}
{{- end }}
