"""Two Services that claim one address, port and protocol."""

TWICE = """\
{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}},
{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop},
 spec: {clusterIP: 10.96.0.9, externalIPs: [198.51.100.7], ports: [{port: 80}]}},
{apiVersion: v1, kind: Service, metadata: {name: b, namespace: shop},
 spec: {type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30081}]},
 status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}},
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a-4, namespace: shop,
 labels: {kubernetes.io/service-name: a}}, addressType: IPv4, ports: [{port: 8080}],
 endpoints: [{addresses: [10.244.1.5], nodeName: n1}]},
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: b-4, namespace: shop,
 labels: {kubernetes.io/service-name: b}}, addressType: IPv4, ports: [{port: 8080}],
 endpoints: [{addresses: [10.244.1.6], nodeName: n1, conditions: {ready: READY}}]}]}
"""
