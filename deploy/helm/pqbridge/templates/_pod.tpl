{{/* The pod, of a StatefulSet or of a Deployment. */}}
{{- define "pqbridge.pod" -}}
{{- include "pqbridge.check" . -}}
{{- $fdb := eq .Values.store "fdb" -}}
{{- $nats := .Values.nats -}}
{{- $leaf := .Values.jetstream -}}
metadata:
  labels:
    {{- include "pqbridge.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # Variables of a service called pq would begin with PQ_, as the settings do.
  enableServiceLinks: false
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $fdb .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range .Values.topologySpreadConstraints }}
    - {{- toYaml . | nindent 6 }}
      labelSelector:
        matchLabels: {{- include "pqbridge.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- if $fdb }}
  initContainers:
    # FoundationDB's client rewrites the file when coordinators change, and a ConfigMap cannot be written to.
    - name: cluster-file
      image: {{ .Values.fdb.copyImage }}
      command: [cp, /config/fdb.cluster, /cluster/fdb.cluster]
      securityContext: {{- toYaml .Values.securityContext | nindent 8 }}
      resources:
        requests: {cpu: 10m, memory: 16Mi}
        limits: {memory: 64Mi}
      volumeMounts:
        - {name: cluster-config, mountPath: /config, readOnly: true}
        - {name: cluster, mountPath: /cluster}
  {{- end }}
  containers:
    - name: pqbridge
      image: {{ include "pqbridge.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        - {name: PQ_STORE, value: {{ .Values.store }}}
        {{- if $fdb }}
        - {name: PQ_FDB_CLUSTER_FILE, value: /cluster/fdb.cluster}
        {{- else }}
        # Not the volume itself, which belongs to root: the folder and its files are for the service alone.
        - {name: PQ_DATA_DIR, value: /data/store}
        {{- end }}
        - {name: PQ_HTTP_ADDR, value: ":8422"}
        - {name: PQ_NATS_URL, value: {{ $nats.url | quote }}}
        {{- with include "pqbridge.nats.env" (dict "prefix" "PQ_NATS" "of" "nats" "login" $nats "tls" $nats.tls) | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with $leaf.leafURL }}
        - {name: PQ_JETSTREAM_LEAF_URL, value: {{ . | quote }}}
        {{- with include "pqbridge.nats.env" (dict "prefix" "PQ_JETSTREAM_LEAF" "of" "leaf" "login" $leaf "tls" $leaf.tls) | trim }}{{ . | nindent 8 }}{{ end }}
        {{- end }}
        {{- range $name, $value := .Values.config }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 8422}
      startupProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext: {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- if $fdb }}
        - {name: cluster, mountPath: /cluster}
        {{- else }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- if .Values.backup.enabled }}
        - {name: backup, mountPath: /backup}
        {{- end }}
        {{- with include "pqbridge.nats.mounts" (dict "of" "nats" "login" $nats "tls" $nats.tls) | trim }}{{ . | nindent 8 }}{{ end }}
        {{- if $leaf.leafURL }}
        {{- with include "pqbridge.nats.mounts" (dict "of" "leaf" "login" $leaf "tls" $leaf.tls) | trim }}{{ . | nindent 8 }}{{ end }}
        {{- end }}
  {{- with include "pqbridge.volumes" . | trim }}
  volumes: {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* All volumes except the embedded store's. */}}
{{- define "pqbridge.volumes" -}}
{{- if eq .Values.store "fdb" }}
- name: cluster
  emptyDir: {sizeLimit: 1Mi}
- name: cluster-config
  configMap:
    name: {{ .Values.fdb.clusterFile.configMap }}
    items: [{key: {{ .Values.fdb.clusterFile.key }}, path: fdb.cluster}]
{{- end }}
{{- if .Values.backup.enabled }}
- name: backup
  persistentVolumeClaim: {claimName: {{ include "pqbridge.backup.claim" . }}}
{{- end }}
{{- include "pqbridge.nats.volumes" (dict "of" "nats" "login" .Values.nats "tls" .Values.nats.tls) }}
{{- if .Values.jetstream.leafURL }}
{{- include "pqbridge.nats.volumes" (dict "of" "leaf" "login" .Values.jetstream "tls" .Values.jetstream.tls) }}
{{- end }}
{{- end -}}

{{/* Variables with a login to NATS and TLS, and the files of both. "of" is nats, or leaf for the leaf node connection. */}}
{{- define "pqbridge.nats.env" -}}
{{- $prefix := .prefix -}}
{{- if .login.credentials.secretName }}
- {name: {{ $prefix }}_CREDS, value: /{{ .of }}/login/file}
{{- end }}
{{- if .login.nkey.secretName }}
- {name: {{ $prefix }}_NKEY, value: /{{ .of }}/login/file}
{{- end }}
{{- with .login.user }}{{ if .secretName }}
- name: {{ $prefix }}_USER
  valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .userKey }}}}
- name: {{ $prefix }}_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .passwordKey }}}}
{{- end }}{{ end }}
{{- with .login.token }}{{ if .secretName }}
- name: {{ $prefix }}_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .key }}}}
{{- end }}{{ end }}
{{- if .tls.ca.secretName }}
- {name: {{ $prefix }}_TLS_CA, value: /{{ .of }}/ca/ca.crt}
{{- end }}
{{- if .tls.client.secretName }}
- {name: {{ $prefix }}_TLS_CERT, value: /{{ .of }}/client/tls.crt}
- {name: {{ $prefix }}_TLS_KEY, value: /{{ .of }}/client/tls.key}
{{- end }}
{{- end -}}

{{- define "pqbridge.nats.volumes" -}}
{{- $of := .of -}}
{{- range list .login.credentials .login.nkey }}{{ if .secretName }}
- name: {{ $of }}-login
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: file}]
{{- end }}{{ end }}
{{- with .tls.ca }}{{ if .secretName }}
- name: {{ $of }}-ca
  secret:
    secretName: {{ .secretName }}
    items: [{key: {{ .key }}, path: ca.crt}]
{{- end }}{{ end }}
{{- with .tls.client.secretName }}
- name: {{ $of }}-client
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "pqbridge.nats.mounts" -}}
{{- if or .login.credentials.secretName .login.nkey.secretName }}
- {name: {{ .of }}-login, mountPath: /{{ .of }}/login, readOnly: true}
{{- end }}
{{- if .tls.ca.secretName }}
- {name: {{ .of }}-ca, mountPath: /{{ .of }}/ca, readOnly: true}
{{- end }}
{{- if .tls.client.secretName }}
- {name: {{ .of }}-client, mountPath: /{{ .of }}/client, readOnly: true}
{{- end }}
{{- end -}}
