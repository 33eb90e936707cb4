//! Field selectors: the documented set of each kind, and fields outside it.

use super::super::case::Memory;
use super::{Case, table};

const PODS: &str = "/api/v1/namespaces/shop/pods?fieldSelector=";

const POD_FIELDS: &[(&str, u16)] = &[
    ("metadata.name%3Dweb-0", 200),
    ("metadata.name=none", 200),
    ("metadata.name!=web-0", 200),
    ("metadata.namespace=shop", 200),
    ("metadata.namespace=a", 200),
    ("spec.nodeName=node-2", 200),
    ("spec.nodeName%3D", 200),
    ("spec.nodeName!=", 200),
    ("spec.nodeName!=node-2", 200),
    ("spec.host=node-2", 200),
    ("spec.restartPolicy=Never", 200),
    ("spec.schedulerName=other", 200),
    ("spec.serviceAccountName=builder", 200),
    ("spec.hostNetwork=true", 200),
    ("spec.hostNetwork=false", 200),
    ("spec.hostNetwork=True", 200),
    ("status.phase=Running", 200),
    ("status.phase==Pending", 200),
    ("status.phase!=Running,status.phase!=Pending", 200),
    ("status.podIP=192.0.2.4", 200),
    ("status.podIP=", 200),
    ("status.podIPs=192.0.2.4", 200),
    ("status.podIPs!=x", 200),
    ("status.nominatedNodeName=", 200),
    ("spec.nodeName=node-2,status.phase=Running", 200),
    (",status.phase=Running,,", 200),
    ("", 200),
    ("status.phase=Run%5C%2Cning", 200),
    ("status.phase=a%5C%3Db", 200),
    ("status.phase=a%5C%5C", 200),
];

const NOT_FIELDS: &[(&str, u16)] = &[
    ("spec.containers=x", 400),
    ("metadata.labels.app=web", 400),
    ("metadata.uid=x", 400),
    ("status.phase", 400),
    ("status.phase+in+(Running)", 400),
    ("status.phase=a=b", 400),
    ("status.phase=a%5Cx", 400),
    ("=Running", 400),
    ("!status.phase", 400),
    ("+status.phase=Running", 400),
    ("Status.phase=Running", 400),
];

const ELSEWHERE: &[&str] = &[
    "/api/v1/pods?fieldSelector=metadata.namespace%3Dshop",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2&labelSelector=app%3Dweb",
    "/api/v1/pods?fieldSelector=metadata.name%3Dweb-0,metadata.namespace%3Da",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dsettings",
    "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dsettings",
    "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue",
    "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse",
    "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1",
    "/api/v1/namespaces?fieldSelector=status.phase%3DActive",
    "/api/v1/replicationcontrollers?fieldSelector=status.replicas%3D2",
    "/apis/batch/v1/jobs?fieldSelector=status.successful%3D1",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests?fieldSelector=spec.signerName%3Dexample.com/signer",
    "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dweb",
    "/apis/apps/v1/deployments?fieldSelector=metadata.namespace%3Dshop",
    "/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Dx",
    "/apis/shop.example.com/v1/widgets?fieldSelector=metadata.name%3Dwidget-1",
    "/apis/shop.example.com/v1/widgets?fieldSelector=metadata.namespace%3Dshop",
    "/apis/shop.example.com/v1/planets?fieldSelector=metadata.name%3Dplanet-1",
];

const NEVER: &[&str] = &[
    "/api/v1/secrets?fieldSelector=type%3DOpaque",
    "/api/v1/namespaces/shop/events?fieldSelector=involvedObject.kind%3DPod",
    "/api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3Dweb-0,type%3DNormal",
    "/api/v1/namespaces/shop/events?fieldSelector=reason%3DFailed",
    "/api/v1/namespaces/shop/events?fieldSelector=source%3Drig",
    "/api/v1/namespaces/shop/events?fieldSelector=reportingComponent%3D",
    "/apis/events.k8s.io/v1/namespaces/shop/events?fieldSelector=regarding.kind%3DPod",
];

const REFUSED: &[&str] = &[
    "/api/v1/nodes?fieldSelector=metadata.namespace%3Dx",
    "/api/v1/namespaces?fieldSelector=name%3Dshop",
    "/api/v1/namespaces?fieldSelector=metadata.namespace%3Dshop",
    "/api/v1/configmaps?fieldSelector=data.x%3D1",
    "/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D1",
    "/apis/apps/v1/deployments?fieldSelector=spec.replicas%3D1",
    "/apis/batch/v1/jobs?fieldSelector=status.active%3D1",
    "/apis/events.k8s.io/v1/namespaces/shop/events?fieldSelector=source%3Drig",
    "/apis/shop.example.com/v1/widgets?fieldSelector=spec.other%3D1",
    "/apis/shop.example.com/v1/planets?fieldSelector=metadata.namespace%3Dx",
];

/// Fields 1.30 does not know: of services, and those custom resource definitions declare.
const NEW: &[&str] = &[
    "/api/v1/services?fieldSelector=spec.clusterIP%3DNone",
    "/api/v1/services?fieldSelector=spec.type%3DNodePort",
    "/apis/shop.example.com/v1/widgets?fieldSelector=spec.color%3Dred",
    "/apis/shop.example.com/v1/widgets?fieldSelector=spec.color%3D",
    "/apis/shop.example.com/v1/namespaces/shop/widgets?fieldSelector=spec.size%3D4",
    "/apis/shop.example.com/v1beta1/widgets?fieldSelector=spec.color!%3Dred",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = table(PODS, Memory::Free, POD_FIELDS);
    cases.extend(table(PODS, Memory::Never, NOT_FIELDS));
    cases.extend(ELSEWHERE.iter().map(|target| Case::get(target)));
    cases.extend(NEVER.iter().map(|target| Case::get(target).never()));
    cases.extend(REFUSED.iter().map(|target| Case::get(target).status(400)));
    cases.extend(NEW.iter().map(|target| Case::get(target).status_on_old(400)));
    cases
}
