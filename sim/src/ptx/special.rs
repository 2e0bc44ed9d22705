//! Special registers (PTX ISA, "Special Registers").

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
    ReservedSmemBegin,
    IsExplicitCluster,
    /// Not constant: read when executed.
    Clock,
    Clock64,
    Globaltimer,
}

impl Special {
    /// The register with this name.
    pub fn parse(name: &str) -> Option<Self> {
        use Special::*;
        let (stem, axis) = match name.rsplit_once('.') {
            Some((stem, "x")) => (stem, 0),
            Some((stem, "y")) => (stem, 1),
            Some((stem, "z")) => (stem, 2),
            Some((stem, "w")) => (stem, 3),
            _ => (name, u8::MAX),
        };
        if axis != u8::MAX {
            return Some(match stem {
                "%tid" => Tid(axis),
                "%ntid" => Ntid(axis),
                "%ctaid" => Ctaid(axis),
                "%nctaid" => Nctaid(axis),
                "%clusterid" => Clusterid(axis),
                "%nclusterid" => Nclusterid(axis),
                "%cluster_ctaid" => ClusterCtaid(axis),
                "%cluster_nctaid" => ClusterNctaid(axis),
                _ => return None,
            });
        }
        Some(match name {
            "%cluster_ctarank" => ClusterCtarank,
            "%cluster_nctarank" => ClusterNctarank,
            "%laneid" => Laneid,
            "%warpid" => Warpid,
            "%nwarpid" => Nwarpid,
            "%smid" => Smid,
            "%nsmid" => Nsmid,
            "%gridid" => Gridid,
            "%lanemask_eq" => LanemaskEq,
            "%lanemask_le" => LanemaskLe,
            "%lanemask_lt" => LanemaskLt,
            "%lanemask_ge" => LanemaskGe,
            "%lanemask_gt" => LanemaskGt,
            "%dynamic_smem_size" => DynamicSmemSize,
            "%total_smem_size" => TotalSmemSize,
            "%aggr_smem_size" => AggrSmemSize,
            "%reserved_smem_offset_begin" => ReservedSmemBegin,
            "%is_explicit_cluster" => IsExplicitCluster,
            "%clock" => Clock,
            "%clock64" => Clock64,
            "%globaltimer" => Globaltimer,
            _ => return None,
        })
    }

    /// Whether every read may differ.
    pub fn varies(self) -> bool {
        matches!(self, Special::Clock | Special::Clock64 | Special::Globaltimer)
    }
}
